// `longspan simulate`: predicts the time of a context-parallel strategy on a machine that need not be here,
// and compares predictions with measured results.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "bench/simulate/against.h"
#include "bench/simulate/predict.h"
#include "bench/simulate/timeline.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/machine_option.h"
#include "cli/progress_line.h"
#include "cli/schedule_case.h"
#include "record/record_json.h"
#include "report/output_file.h"

namespace longspan::cli {
namespace {

using bench::Compared;
using bench::format_bytes;
using bench::format_seconds;
using bench::Machine;
using bench::Prediction;
using record::Json;

struct SimulateArguments : ScheduleArguments, MachineArguments {
  std::string timeline;
  std::vector<std::string> against;
  bool band = false, json = false;
};

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

// What the time of the slowest rank consists of.
void print_critical_path(const Prediction& p, std::string_view of_mask) {
  const auto path = simulate::critical_path(p.pass.program, p.pass.timeline);
  std::map<std::string_view, double> sums;
  size_t changes = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool transfer = path[i].from >= 0;
    sums[transfer ? "transfers" : bench::name_of(path[i].kind)] += path[i].end_s - path[i].begin_s;
    if (i > 0 && path[i].rank != path[i - 1].rank) ++changes;
  }
  std::string text;
  for (const auto& [name, seconds] : sums)
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", name, format_seconds(seconds),
                        percent(seconds / p.pass.timeline.time_s));
  fmt::print("  longest path {}{}; over {} rank{}\n", of_mask, text, changes + 1, changes == 0 ? "" : "s");
}

// The rank whose buffers use the most at once, and when.
void print_memory(const Prediction& p, std::string_view of_mask) {
  size_t fullest = 0, round = 0;
  bench::MemoryStep most;
  for (size_t rank = 0; rank < p.pass.memory.size(); ++rank) {
    const std::vector<bench::MemoryStep> steps = bench::memory_over_time(p.pass, rank);
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].bytes > most.bytes) fullest = rank, round = i, most = steps[i];
    }
  }
  fmt::print("  {:<12} {}at most {} in use, by rank {} in round {}, from {} on\n", "memory", of_mask,
             format_bytes(most.bytes), fullest, round, format_seconds(most.begin_s));
}

void print_ranks(const Prediction& p, std::string_view of_mask) {
  constexpr size_t kMost = 32;
  const record::ParallelRecord& r = *p.record.parallel;
  fmt::print("\n  {:>4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>10}  {:>10}  {}{}\n", "rank", "time",
             "compute", "exposed", "reorder", "merge", "sent", "held", "waits most for", of_mask);
  const size_t ranks = r.rank_time_s.size();
  for (size_t rank = 0; rank < std::min(ranks, kMost); ++rank) {
    const simulate::RankTimes& times = p.pass.timeline.ranks[rank];
    const std::string held = r.held_bytes.empty() ? "-" : format_bytes(r.held_bytes[rank]);
    const std::string waits = times.waits_most_for < 0 ? "-"
                                                       : fmt::format("rank {}, {}", times.waits_most_for,
                                                                     format_seconds(times.waits_most_s));
    fmt::print("  {:>4}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {:>10}  {:>10}  {}\n", rank,
               format_seconds(r.rank_time_s[rank]), format_seconds(r.compute_s[rank]),
               format_seconds(r.exposed_s[rank]), format_seconds(r.reorder_s[rank]),
               format_seconds(r.merge_s[rank]), format_bytes(r.predicted_bytes[rank]), held, waits);
  }
  if (ranks > kMost) fmt::print("  ... {} more ranks; --json lists all\n", ranks - kMost);
  fmt::print("\n  held: buffers besides the rank's own tensors and the kernel's plans\n");
}

void print_text(const Prediction& p, const bench::Case& c, const Machine& machine) {
  const record::CaseRecord& record = p.record;
  fmt::print("{}: simulated\n", printable(describe(c)));
  fmt::print("{}", machine_line(machine));
  fmt::print("  {:<12} {}; {:.0f} TFLOP/s per rank; the fastest rank is {} ahead\n", "time",
             format_seconds(*record.time_s), *record.flops_per_s_per_rank * 1e-12,
             percent(record.parallel->spread.value_or(0)));
  if (record.interval_s) {
    fmt::print("  {:<12} {} to {}, with links a quarter faster and slower\n", "band",
               format_seconds(record.interval_s->lo), format_seconds(record.interval_s->hi));
  }
  // The times are means over the masks; the path and the waits are one mask's.
  const bool several = c.masks > 1;
  print_critical_path(p, several ? "of mask 0: " : "");
  print_memory(p, several ? "of mask 0: " : "");
  print_ranks(p, several ? ", of mask 0" : "");
}

// Mean and largest of a list of errors.
struct Errors {
  int count = 0;
  double sum = 0, most = 0;
  void add(double error) {
    ++count;
    sum += error;
    most = std::max(most, error);
  }
  double mean() const { return count == 0 ? 0 : sum / count; }
  Json json() const { return {{"cases", count}, {"mean", mean()}, {"largest", most}}; }
};

using ErrorsBy = std::map<std::string, std::map<std::string, Errors>>;  // "strategy", "usp"

ErrorsBy errors_by(const std::vector<Compared>& cases) {
  ErrorsBy errors;
  for (const Compared& each : cases) {
    const bench::Case& c = each.c;
    errors["all"][c.parallelism ? "several ranks" : "one device"].add(each.error());
    if (each.measured.held_bytes > 0)
      errors["memory"]["held"].add(std::abs(each.predicted.held_bytes / each.measured.held_bytes - 1));
    errors["strategy"][c.parallelism ? c.parallelism.strategy : "one device"].add(each.error());
    errors["mask"][c.mask].add(each.error());
    errors["pass"][std::string(name_of(c.direction))].add(each.error());
    errors["tokens"][format_length(c.seqlen)].add(each.error());
  }
  return errors;
}

void print_against_json(const std::vector<Compared>& cases, const std::vector<bench::Choice>& choices) {
  const auto parts = [](const bench::Parts& p) -> Json {
    return {{"compute_s", p.compute_s},
            {"exposed_s", p.exposed_s},
            {"reorder_s", p.reorder_s},
            {"merge_s", p.merge_s},
            {"held_bytes", p.held_bytes}};
  };
  for (const Compared& each : cases) {
    const Json line = {{"id", id_of(each.c)},
                       {"case", bench::to_json(each.c)},
                       {"measured_s", each.measured_s},
                       {"predicted_s", each.predicted_s},
                       {"error", each.error()},
                       {"measured", parts(each.measured)},
                       {"predicted", parts(each.predicted)}};
    fmt::print("{}\n", record::text_of(line));
  }
  Json summary = {{"errors", Json::object()}, {"choices", Json::array()}};
  for (const auto& [by, groups] : errors_by(cases)) {
    for (const auto& [name, errors] : groups) summary["errors"][by][name] = errors.json();
  }
  for (const bench::Choice& choice : choices) {
    summary["choices"].push_back({{"problem", choice.what},
                                  {"chosen", choice.chosen},
                                  {"best", choice.best},
                                  {"regret", choice.regret}});
  }
  fmt::print("{}\n", record::text_of(summary));
}

void print_against_text(const std::vector<Compared>& cases, const std::vector<bench::Choice>& choices,
                        const Machine& machine) {
  fmt::print("predicted and measured times\n");
  fmt::print("{}", machine_line(machine));
  fmt::print("\n  {:<9}  {:<22}  {:>5}  {:>6}  {:>7}\n", "by", "", "cases", "mean", "largest");
  for (const auto& [by, groups] : errors_by(cases)) {
    for (const auto& [name, errors] : groups)
      fmt::print("  {:<9}  {:<22}  {:>5}  {:>6}  {:>7}\n", by, printable(name), errors.count,
                 percent(errors.mean()), percent(errors.most));
  }
  fmt::print("\n  {:>10}  {:>10}  {:>6}  the cases with the largest errors\n", "measured", "predicted",
             "error");
  std::vector<const Compared*> worst;
  worst.reserve(cases.size());
  for (const Compared& each : cases) worst.push_back(&each);
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Compared* a, const Compared* b) { return a->error() > b->error(); });
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(kShown, worst.size()); ++i) {
    fmt::print("  {:>10}  {:>10}  {:>6}  {}\n", format_seconds(worst[i]->measured_s),
               format_seconds(worst[i]->predicted_s), percent(worst[i]->error()),
               printable(describe(worst[i]->c)));
  }
  if (choices.empty()) return;
  Errors regret;
  fmt::print("\n  {:>6}  the predicted fastest strategy; the measured one\n", "regret");
  for (const bench::Choice& choice : choices) {
    regret.add(choice.regret);
    fmt::print("  {:>6}  {}; {}: {}\n", percent(choice.regret), choice.chosen, choice.best,
               printable(choice.what));
  }
  fmt::print("  {:>6}  mean; at most {}\n", percent(regret.mean()), percent(regret.most));
}

void compare_with_results(const SimulateArguments& options, const Machine& machine) {
  const auto leave_out = [](bool given, const std::string& option) {
    LONGSPAN_CHECK_INPUT(!given, "--against predicts the cases of results files: leave out {}", option);
  };
  leave_out(!options.strategy.empty(), "the strategy");
  leave_out(!options.timeline.empty(), "--timeline");
  leave_out(options.band, "--band");
  leave_out(!options.kernel.empty(), "--kernel");
  for (const auto& [axis, value] : options.axes) leave_out(!value.empty(), option_name(axis));
  std::vector<Compared> cases;
  {
    const ProgressLine progress;
    cases =
        bench::compare_with(options.against, machine, [&](const std::string& text) { progress.show(text); });
  }
  LONGSPAN_CHECK_INPUT(!cases.empty(), "--against: no measured case that {} describes", machine.name);
  const std::vector<bench::Choice> choices = bench::choices(cases);
  options.json ? print_against_json(cases, choices) : print_against_text(cases, choices, machine);
}

void simulate_case(const SimulateArguments& options, const Machine& machine) {
  LONGSPAN_CHECK_INPUT(!options.strategy.empty(), "give a strategy, or results files with --against");
  const bench::Case c = schedule_case(options, options.kernel_of(machine));
  Prediction p;
  {
    const ProgressLine progress;
    p = bench::predict(c, machine, options.band ? bench::Band::kLinks : bench::Band::kNone,
                       [&](const std::string& text) { progress.show(text); });
  }
  if (!options.timeline.empty()) {
    const report::OutputFile file("--timeline", options.timeline, {"a timeline", bench::kTimelineBegin}, {});
    file.write(bench::timeline_json(p.pass));
  }
  if (options.json) {
    fmt::print("{}\n", record::text_of(bench::simulated_line(p, machine)));
  } else {
    print_text(p, c, machine);
  }
}

}  // namespace

void add_simulate_command(CLI::App& program) {
  auto options = std::make_shared<SimulateArguments>();
  CLI::App* command = program.add_subcommand(
      "simulate", "Predict the time of a context-parallel strategy on a machine that need not be here");
  options->unread = {"kernel", "deterministic", "sinks", "softcap", "alibi", "strategy"};
  add_strategy_argument(*command, *options);
  add_schedule_options(*command, *options);
  add_machine_options(*command, *options);
  command
      ->add_option("--against", options->against,
                   "predict the measured cases of these results files, and print the errors")
      ->type_name("FILE");
  command->add_option("--timeline", options->timeline, "write mask 0's timeline, for ui.perfetto.dev")
      ->type_name("FILE");
  command->add_flag("--band", options->band, "also predict with links a quarter faster and slower");
  command->add_flag("--json", options->json, "print a record as the runner's, of type \"simulated\"");
  command->footer(
      "Nothing runs on a device. docs/concepts/simulation.md says what is simulated and how well it "
      "predicts.\n"
      "Examples:\n"
      "  longspan simulate balanced --machine data/machines/h200.json --ranks 4 --mask causal --seqlen "
      "128K\n"
      "  longspan simulate usp --machine data/machines/hgx-h100.json --topology 4x8 --mask causal --seqlen "
      "1M "
      "--transport nccl\n"
      "  longspan simulate --machine data/machines/h200.json --against "
      "results/nvidia-h200-x4/2026-11-26-cp.jsonl");
  command->callback([options] {
    const Machine machine = bench::read_machine(options->machine);
    options->against.empty() ? simulate_case(*options, machine) : compare_with_results(*options, machine);
  });
}

}  // namespace longspan::cli
