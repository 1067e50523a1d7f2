// `longspan compare`: classifies cases as faster or slower than in another set of results.
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "report/compare.h"
#include "report/format.h"

namespace longspan::cli {
namespace {

struct CompareArguments {
  std::string a, b;
  report::CompareOptions compare;
  std::optional<double> fail_below;
  bool json = false;
};

void run_compare(const CompareArguments& options) {
  LONGSPAN_CHECK_INPUT(!options.fail_below || *options.fail_below > 0, "--fail-below {}: must be above 0",
                       *options.fail_below);
  const report::Results a = report::read_results({options.a});
  const report::Results b = report::read_results({options.b});
  const report::CompareReport comparison = report::compare(a, b, options.compare);
  const std::string text = options.json ? report::comparison_json(comparison, options.compare)
                                        : report::format_comparison(comparison, options.compare,
                                                                    report::table_options_for(stdout));
  fmt::print("{}", text);
  if (!options.fail_below) return;
  const auto below = comparison.below(*options.fail_below);
  for (const report::Comparison* c : below) {
    fmt::print(stderr, "longspan: below {}: {} at {:.3f} [{:.3f}, {:.3f}]\n", *options.fail_below,
               printable(report::case_title(c->a->workload)), c->ratio, c->interval->lo,
               c->interval->hi);
  }
  if (!below.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_compare_command(CLI::App& program) {
  auto options = std::make_shared<CompareArguments>();
  CLI::App* command = program.add_subcommand(
      "compare", "Compare two sets of results: each case is faster, slower, same or ambiguous");
  command->add_option("a", options->a, "the baseline results (file or folder)")->required();
  command->add_option("b", options->b, "the results to compare with the baseline (file or folder)")
      ->required();
  command->add_option("--fail-below", options->fail_below,
                      "exit with 1 if any case's speed ratio B / A is below this with its whole interval");
  command->add_option("--tolerance", options->compare.tolerance,
                      "ratios from 1 / (1 + T) to 1 + T count as the same [0.02]");
  command->add_option("--confidence", options->compare.confidence, "confidence of the intervals [0.95]");
  command->add_flag("--json", options->json, "print the comparison as JSON");
  command->footer(
      "Examples:\n"
      "  longspan compare out/before out/after\n"
      "  longspan compare out/before out/after --fail-below 0.95      for continuous integration\n"
      "  longspan compare out/before out/after --json");
  command->callback([options] { run_compare(*options); });
}

}  // namespace longspan::cli
