// `longspan results-page`: prints docs/reference/results.md, made from the fields of the records. It is for
// developers of the project, so it is hidden.
#include <fmt/format.h>

#include "cli/command.h"
#include "record/schema.h"

namespace longspan::cli {

void add_results_page_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("results-page", "Print docs/reference/results.md");
  command->group("");
  command->callback([] { fmt::print("{}", record::results_page()); });
}

}  // namespace longspan::cli
