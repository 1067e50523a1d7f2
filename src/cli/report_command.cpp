// `longspan report`: shows results as a terminal table, or as one self-contained HTML page.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "cli/wiring.h"
#include "cp/strategies/strategy.h"
#include "mask/patterns/patterns.h"
#include "report/experiment.h"
#include "report/format.h"
#include "report/output_file.h"
#include "report/page.h"
#include "report/results.h"
#include "report/table.h"

namespace longspan::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> results;
  std::string output;
  std::string title;
  std::string experiment;
};

report::PageOptions page_options(const ReportArguments& arguments, const report::Results& results) {
  report::PageOptions options;
  options.title = arguments.title;
  if (!arguments.experiment.empty()) {
    const report::Experiment experiment = report::find_experiment(arguments.experiment);
    options.experiment = report::experiment_json(experiment, report::evaluate(experiment, results));
    if (options.title.empty()) options.title = experiment.title;
  }
  for (const KernelRow& row : workbench().rows) {
    if (!row.colour.empty()) options.kernel_colours.emplace_back(row.name, row.colour);
  }
  std::vector<const Strategy*> by_series;
  for (const Strategy& strategy : strategies()) by_series.push_back(&strategy);
  std::stable_sort(by_series.begin(), by_series.end(),
                   [](const Strategy* a, const Strategy* b) { return a->series < b->series; });
  for (const Strategy* strategy : by_series) options.strategies.emplace_back(strategy->name);
  for (const TableOption& option : strategy_options())
    options.strategy_options.emplace_back(option.spec.name);
  for (const TableOption& option : pattern_options()) {
    if (option.spec.numeric()) options.swept_options.emplace_back(option.spec.name);
  }
  options.plainest_mask = kPlainestPattern;
  return options;
}

void write_page(const ReportArguments& options, const std::vector<std::filesystem::path>& paths) {
  const report::OutputFile file("--output", options.output,
                                {"a page of `longspan report`", report::page_begin()},
                                report::results_files(paths));
  const ProgressLine progress;
  progress.show("reading the results");
  const report::Results results = report::read_results(paths);
  progress.clear();
  for (const std::string& warning : results.warnings)
    fmt::print(stderr, "longspan: warning: {}\n", printable(warning));
  const std::string page = report::format_page(results, page_options(options, results));
  file.write(page);
  fmt::print(file.is_stdout() ? stderr : stdout, "{}: {} cases, {:.1f} MB; open it in any browser\n",
             printable(options.output), results.cases.size(), static_cast<double>(page.size()) / 1e6);
}

void run_report(const ReportArguments& options) {
  const std::vector<std::filesystem::path> paths(options.results.begin(), options.results.end());
  if (!options.experiment.empty())
    report::find_experiment(options.experiment);  // before the results are read
  if (!options.output.empty()) return write_page(options, paths);
  const ProgressLine progress;
  progress.show("reading the results");
  const report::Results results = report::read_results(paths);
  progress.clear();
  if (!options.experiment.empty()) {
    const report::Experiment experiment = report::find_experiment(options.experiment);
    fmt::print("{}", report::format_experiment(experiment, report::evaluate(experiment, results),
                                               report::table_options_for(stdout)));
    return;
  }
  report::print_table(stdout, results, report::table_options_for(stdout));
}

}  // namespace

void add_report_command(CLI::App& program) {
  auto options = std::make_shared<ReportArguments>();
  CLI::App* command =
      program.add_subcommand("report", "Show results as a table, or as one self-contained HTML page");
  command->add_option("results", options->results, "results.jsonl files, or folders that contain them")
      ->required();
  command->add_option(
      "-o,--output", options->output,
      "write an HTML page to this file, instead of printing a table; replaces only such a page");
  command->add_option("--title", options->title, "title of the page")->needs("--output");
  command
      ->add_option(
          "--experiment", options->experiment,
          "say whether the results agree with experiment 1, 2 or 3 of arXiv 2510.17896 (suites paper-1 to "
          "paper-3)")
      ->type_name("N");
  command->footer(
      "Examples:\n"
      "  longspan report out/quick                              a table on the terminal\n"
      "  longspan report out/quick -o report.html               a page that opens offline\n"
      "  longspan report before after -o report.html            several runs or machines in one page\n"
      "  longspan report --experiment 1 out/paper-1             what a paper found, and what was measured");
  command->callback([options] { run_report(*options); });
}

}  // namespace longspan::cli
