// Errors: one exception type, and the checks that throw it. The checks stay on in release builds.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace longspan {

// What kind of failure an Error reports, which decides how a program ends: bad input is the user's to
// mend (one clear line, exit code 2), an internal failure is ours (with file, line and expression).
// A failure of another process (a rank of the group, a peer's worker) is kPeer. kUnsupported: a kernel found
// only while planning that it cannot do this.
enum class ErrorKind { kInput, kInternal, kOutOfMemory, kPeer, kUnsupported };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, const char* file, int line, const char* expression)
      : std::runtime_error(kind == ErrorKind::kInternal
                               ? fmt::format("{} [{}:{}: {}]", message, file, line, expression)
                               : message),
        kind_(kind),
        file_(file),
        line_(line),
        expression_(expression) {}

  ErrorKind kind() const { return kind_; }
  const char* file() const { return file_; }
  int line() const { return line_; }
  const char* expression() const { return expression_; }

 private:
  ErrorKind kind_;
  const char* file_;
  int line_;
  const char* expression_;
};

}  // namespace longspan

// LONGSPAN_CHECK(i < n, "row {} is outside the {} rows of the mask", i, n): an invariant of the program.
#define LONGSPAN_CHECK(condition, ...)                                                              \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      throw ::longspan::Error(::longspan::ErrorKind::kInternal, fmt::format(__VA_ARGS__), __FILE__, \
                              __LINE__, #condition);                                                \
  } while (false)

// LONGSPAN_CHECK_INPUT(b > 0, "--block {}: must be at least 1", b): something a user gave. The message names
// the value, what is allowed, and what to do.
#define LONGSPAN_CHECK_INPUT(condition, ...)                                                               \
  do {                                                                                                     \
    if (!(condition)) [[unlikely]]                                                                         \
      throw ::longspan::Error(::longspan::ErrorKind::kInput, fmt::format(__VA_ARGS__), __FILE__, __LINE__, \
                              #condition);                                                                 \
  } while (false)
