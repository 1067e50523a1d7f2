// Adds --python and passes its value on in LONGSPAN_PYTHON.
#include "cli/python_option.h"

#include <cstdlib>

#include <unistd.h>

#include "base/error.h"

namespace longspan::cli {

void add_python_option(CLI::App& command, std::vector<std::string>& pythons) {
  command
      .add_option("--python", pythons,
                  "Python interpreter for the peers [python3]; repeat the option if peers need different "
                  "environments")
      ->type_name("PATH")
      ->expected(1)
      ->take_all();
}

void set_pythons(const std::vector<std::string>& pythons) {
  if (pythons.empty()) return;
  std::string list;
  for (const std::string& python : pythons) {
    LONGSPAN_CHECK_INPUT(python.find('/') == std::string::npos || access(python.c_str(), X_OK) == 0,
                         "--python {}: not an executable file", python);
    list += (list.empty() ? "" : ":") + python;
  }
  setenv("LONGSPAN_PYTHON", list.c_str(), 1);
}

}  // namespace longspan::cli
