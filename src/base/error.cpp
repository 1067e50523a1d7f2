// The one exception type.
#include "base/error.h"

namespace longspan {

Error::Error(ErrorKind kind, const std::string& message, const char* file, int line, const char* expression)
    : std::runtime_error(kind == ErrorKind::kInternal
                             ? fmt::format("{} [{}:{}: {}]", message, file, line, expression)
                             : message),
      kind_(kind),
      file_(file),
      line_(line),
      expression_(expression) {}

}  // namespace longspan
