// `longspan compare`: classifies cases as faster or slower than in another set of results.
#include <charconv>
#include <cmath>
#include <memory>
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
  std::string fail_below, tolerance, confidence;
  bool allow_missing = false;
  bool json = false;
};

// A gate must not pass because its bound is empty or no number, so such options are read as text.
double number_of(const std::string& option, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  LONGSPAN_CHECK_INPUT(error == std::errc() && end == text.data() + text.size() && std::isfinite(number),
                       "{} '{}': must be a number", option, text);
  return number;
}

// The exit code: 1 if a case is slower than allowed, or was not measured again. Names each such case.
int judge(const report::CompareReport& comparison, double bound, bool allow_missing) {
  const auto title = [](const report::CaseRecord& c) { return printable(report::case_title(c.workload)); };
  const auto below = comparison.below(bound);
  for (const report::Comparison* c : below) {
    const std::string interval =
        c->interval ? fmt::format(" [{:.3f}, {:.3f}]", c->interval->lo, c->interval->hi) : "";
    fmt::print(stderr, "longspan: below {}: {} at {:.3f}{}\n", bound, title(*c->a), c->ratio, interval);
  }
  for (const report::Unmatched& c : comparison.only_a)
    fmt::print(stderr, "longspan: {}: {}\n", title(*c.a), printable(c.why()));
  const bool missing = !comparison.only_a.empty() && !allow_missing;
  if (missing) {
    fmt::print(
        stderr,
        "longspan: {} of the cases measured in A were not measured in B; --allow-missing accepts that\n",
        comparison.only_a.size());
  }
  if (comparison.both.empty())
    fmt::print(stderr, "longspan: nothing was compared: no case was measured in both\n");
  return below.empty() && !missing && !comparison.both.empty() ? 0 : 1;
}

void run_compare(const CLI::App& command, const CompareArguments& options) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  report::CompareOptions compare;
  if (given("--tolerance")) compare.tolerance = number_of("--tolerance", options.tolerance);
  if (given("--confidence")) compare.confidence = number_of("--confidence", options.confidence);
  const double bound = given("--fail-below") ? number_of("--fail-below", options.fail_below) : 0;
  LONGSPAN_CHECK_INPUT(!given("--fail-below") || bound > 0, "--fail-below '{}': must be a number above 0",
                       options.fail_below);
  const report::Results a = report::read_results({options.a});
  const report::Results b = report::read_results({options.b});
  const report::CompareReport comparison = report::compare(a, b, compare);
  const std::string text =
      options.json ? report::comparison_json(comparison, compare)
                   : report::format_comparison(comparison, compare, report::table_options_for(stdout));
  fmt::print("{}", text);
  if (!given("--fail-below")) return;
  if (const int code = judge(comparison, bound, options.allow_missing); code != 0)
    throw CLI::RuntimeError(code);
}

}  // namespace

void add_compare_command(CLI::App& program) {
  auto options = std::make_shared<CompareArguments>();
  CLI::App* command = program.add_subcommand(
      "compare", "Compare two sets of results: each case is faster, slower, same or ambiguous");
  command->add_option("a", options->a, "the baseline results (file or folder)")->required();
  command->add_option("b", options->b, "the results to compare with the baseline (file or folder)")
      ->required();
  CLI::Option* gate =
      command
          ->add_option(
              "--fail-below", options->fail_below,
              "exit with 1 if any case's speed ratio B / A is below this with its whole interval, or if B "
              "lacks, skipped or failed a case that A measured")
          ->type_name("RATIO");
  command
      ->add_flag("--allow-missing", options->allow_missing,
                 "accept cases that A measured and B did not: missing, skipped or failed")
      ->needs(gate);
  command
      ->add_option("--tolerance", options->tolerance,
                   "ratios from 1 / (1 + T) to 1 + T count as the same [0.02]")
      ->type_name("T");
  command->add_option("--confidence", options->confidence, "confidence of the intervals [0.95]")
      ->type_name("C");
  command->add_flag("--json", options->json, "print the comparison as JSON");
  command->footer(
      "Exit code: 0, 1 if --fail-below says no, 2 for a wrong option, unreadable results, or no case in "
      "common.\n"
      "Examples:\n"
      "  longspan compare out/before out/after\n"
      "  longspan compare out/before out/after --fail-below 0.95      for continuous integration\n"
      "  longspan compare out/before out/after --json");
  command->callback([options, command] { run_compare(*command, *options); });
}

}  // namespace longspan::cli
