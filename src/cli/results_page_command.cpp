// `longspan results-page`: docs/reference/results.md, made from the fields of the records. It is for those
// who work on the project, so it is not listed among the commands.
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
