// The program `longspan`: the only place that wires concrete things together.
#include "base/error.h"
#include "cli/command.h"

namespace longspan::cli {

// The table of commands. Add a row (and its declaration) to add a command.
constexpr AddCommand kCommands[] = {
    nullptr,
};

}  // namespace longspan::cli

int main(int argc, char** argv) {
  CLI::App program{"Longspan measures, and supplies, long-context attention."};
  program.require_subcommand(1);
  for (auto add : longspan::cli::kCommands) {
    if (add != nullptr) add(program);
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const longspan::Error& error) {
    fmt::print(stderr, "longspan: {}\n", error.what());
    return error.kind() == longspan::ErrorKind::kInput ? 2 : 1;
  }
  return 0;
}
