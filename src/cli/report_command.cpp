// `longspan report`: results as a terminal table.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "report/results.h"
#include "report/table.h"

namespace longspan::cli {
namespace {

struct Options {
  std::vector<std::string> results;
};

void run_report(const Options& options) {
  const std::vector<std::filesystem::path> paths(options.results.begin(), options.results.end());
  report::print_table(stdout, report::read_results(paths), report::table_options_for(stdout));
}

}  // namespace

void add_report_command(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("report", "Show results as a table");
  command->add_option("results", options->results, "results.jsonl files, or folders that hold them")
      ->required();
  command->footer(
      "Examples:\n"
      "  longspan report out/quick                \n"
      "  longspan report before after                            several runs or machines");
  command->callback([options] { run_report(*options); });
}

}  // namespace longspan::cli
