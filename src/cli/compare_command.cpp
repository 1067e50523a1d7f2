// `longspan compare`: which cases of one set of results are faster or slower than those of another.
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
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
               report::printable(report::case_title(c->a->workload)), c->ratio, c->interval->lo,
               c->interval->hi);
  }
  if (!below.empty()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_compare_command(CLI::App& program) {
  auto options = std::make_shared<CompareArguments>();
  CLI::App* command = program.add_subcommand("compare", "Name each case faster, slower, same or ambiguous");
  command->add_option("a", options->a, "the results to compare with (file or folder)")->required();
  command->add_option("b", options->b, "the results to judge (file or folder)")->required();
  command->add_option("--fail-below", options->fail_below,
                      "exit with 1 if the whole interval of any case's speed ratio B / A lies below this");
  command->add_option("--tolerance", options->compare.tolerance,
                      "ratios within 1 / (1 + T) to 1 + T are the same; 0.02 if not given");
  command->add_option("--confidence", options->compare.confidence, "of the interval; 0.95 if not given");
  command->add_flag("--json", options->json, "print the comparison as JSON");
  command->footer(
      "Examples:\n"
      "  longspan compare out/before out/after\n"
      "  longspan compare out/before out/after --fail-below 0.95      for a continuous check\n"
      "  longspan compare out/before out/after --json");
  command->callback([options] { run_compare(*options); });
}

}  // namespace longspan::cli
