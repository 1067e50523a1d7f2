// The program `longspan`: the only place that wires concrete things together.
#include "base/error.h"
#include "cli/command.h"

namespace longspan::cli {

void add_compare_command(CLI::App& program);
void add_report_command(CLI::App& program);

// The table of commands. Add a row (and its declaration) to add a command.
constexpr AddCommand kCommands[] = {
    add_compare_command,
    add_report_command,
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
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // a command that has said why
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  } catch (const longspan::Error& error) {
    fmt::print(stderr, "longspan: {}\n", error.what());
    return error.kind() == longspan::ErrorKind::kInput ? 2 : 1;
  }
  return 0;
}
