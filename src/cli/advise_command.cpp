// `longspan advise`: orders the strategies that a problem and a machine allow by their predicted time.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "base/printable.h"
#include "bench/simulate/advise.h"
#include "bench/simulate/against.h"
#include "bench/simulate/predict.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/machine_option.h"
#include "cli/progress_line.h"
#include "cli/schedule_case.h"
#include "cli/workload_advice.h"
#include "record/json.h"
#include "report/output_file.h"

namespace longspan::cli {
namespace {

using bench::Advice;
using bench::Candidate;
using record::Json;

struct AdviseArguments : ScheduleArguments, MachineArguments {
  std::string workload, memory, predictions;
  std::vector<std::string> measured;
  bool shardings = false, json = false;
};

// A pass of the fastest candidate, and the measured case that is most like it.
struct Nearest {
  Direction direction;
  bench::Compared compared;
};

// Lines of `longspan simulate --json` begin with their type.
constexpr std::string_view kPredictionsBegin = "{\"type\":\"simulated\"";

// What --memory gives; 0 without it.
double bytes_of(const std::string& text) {
  if (text.empty()) return 0;
  try {
    return static_cast<double>(bench::parse_count(text, 1, int64_t{1'000'000'000'000'000}));
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "--memory {}", error.what());
    throw;
  }
}

bool too_close(const Candidate& candidate, const Candidate& best) {
  return candidate.time_s() < (1 + bench::kTooClose) * best.time_s();
}

void print_json(const Advice& advice, const std::vector<Nearest>& nearest, const bench::Case& problem,
                const bench::Machine& machine) {
  const std::vector<Candidate>& candidates = advice.candidates;
  Json list = Json::array();
  for (const Candidate& candidate : candidates) {
    nlohmann::json axes = nlohmann::json::object();
    add_to_json(candidate.parallelism, axes);
    Json entry = {{"kernel", candidate.kernel}};
    entry.update(Json(axes));
    entry["forward_s"] = candidate.forward_s;
    entry["backward_s"] = candidate.backward_s;
    entry["slower_links_s"] = candidate.slower_links_s;
    entry["faster_links_s"] = candidate.faster_links_s;
    if (candidate.held_bytes > 0) entry["held_bytes"] = candidate.held_bytes;
    entry["memory_bytes"] = candidate.memory_bytes;
    entry["fits"] = candidate.fits;
    entry["too_close"] = candidate.fits && too_close(candidate, candidates.front());
    const std::string reason = reason_of(candidate, candidates.front());
    if (!reason.empty()) entry["reason"] = reason;
    list.push_back(std::move(entry));
  }
  const std::string transport(name_of(problem.parallelism.transport));
  Json measured = Json::array();
  for (const Nearest& each : nearest) {
    measured.push_back({{"direction", name_of(each.direction)},
                        {"case", bench::to_json(each.compared.c)},
                        {"measured_s", each.compared.measured_s},
                        {"predicted_s", each.compared.predicted_s}});
  }
  Json refused = Json::object();
  for (const auto& [kernel, reason] : advice.refused) refused[kernel] = reason;
  const Json json = {{"machine", {{"name", machine.name}, {"measured", machine.measured(transport)}}},
                     {"mask", problem.mask},
                     {"seqlen", problem.seqlen},
                     {"candidates", std::move(list)},
                     {"refused_kernels", std::move(refused)},
                     {"nearest_measured", std::move(measured)}};
  fmt::print("{}\n", record::text_of(json));
}

// "sm90 balanced" where there are several kernels.
std::string name_of(const Candidate& candidate, bool with_kernel) {
  const std::string strategy = describe_strategy(candidate.parallelism);
  return with_kernel ? fmt::format("{} {}", printable(candidate.kernel), strategy) : strategy;
}

// A line for each kernel of the machine: its fastest candidate, or why it was not tried.
void print_kernels(const Advice& advice) {
  const Candidate& best = advice.candidates.front();
  std::vector<std::string> known;
  const auto print = [&](const std::string& kernel, const std::string& verdict) {
    fmt::print("  {:<12} {}: {}\n", known.empty() ? "kernels" : "", printable(kernel), verdict);
    known.push_back(kernel);
  };
  for (const Candidate& each : advice.candidates) {  // the first of a kernel is its fastest
    if (std::find(known.begin(), known.end(), each.kernel) != known.end()) continue;
    std::string verdict =
        fmt::format("{} with {}", bench::format_seconds(each.time_s()), describe_strategy(each.parallelism));
    if (!each.fits) {
      verdict += ", which does not fit";
    } else if (&each != &best) {
      const std::string reason = reason_of(each, best);
      verdict += too_close(each, best)
                     ? ", too close to call"
                     : fmt::format(", {:.0f}% slower{}{}", 100 * (each.time_s() / best.time_s() - 1),
                                   reason.empty() ? "" : ": ", reason);
    }
    print(each.kernel, verdict);
  }
  for (const auto& [kernel, reason] : advice.refused) print(kernel, reason);
}

// The fastest candidate that fits if all links were slower, or faster.
void print_fastest(const std::vector<Candidate>& candidates, bool with_kernel, const char* links,
                   double Candidate::*time) {
  const Candidate& best = *std::min_element(
      candidates.begin(), candidates.end(),
      [&](const Candidate& a, const Candidate& b) { return a.fits != b.fits ? a.fits : a.*time < b.*time; });
  fmt::print("  with links a quarter {}: {}, {}\n", links, name_of(best, with_kernel),
             bench::format_seconds(best.*time));
}

void print_text(const Advice& advice, const std::vector<Nearest>& nearest, const bench::Case& problem,
                const bench::Machine& machine) {
  const std::vector<Candidate>& candidates = advice.candidates;
  const bool with_kernel = std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& each) {
    return each.kernel != candidates.front().kernel;
  });
  const Topology topology = problem.parallelism.topology();
  fmt::print("{} {}, {}:{} heads of {}, {}, on {}x{} GPUs: predicted\n", printable(problem.mask),
             format_length(problem.seqlen), problem.heads_q, problem.heads_kv, problem.head_dim,
             name_of(problem.dtype), topology.nodes, topology.devices);
  fmt::print("{}", machine_line(machine));
  print_kernels(advice);
  fmt::print("\n");
  fmt::print("  {:<38}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}\n", "strategy", "both", "forward", "backward",
             "held", "memory");
  const Candidate& best = candidates.front();
  for (const Candidate& each : candidates) {
    const double more = 100 * (each.time_s() / best.time_s() - 1);
    const std::string reason = reason_of(each, best);
    const std::string verdict =
        !each.fits              ? "does not fit"
        : &each == &best        ? "fastest"
        : too_close(each, best) ? "too close to call"
                                : fmt::format("{:.0f}% slower{}{}", more, reason.empty() ? "" : ": ", reason);
    fmt::print("  {:<38}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}\n", name_of(each, with_kernel),
               bench::format_seconds(each.time_s()), bench::format_seconds(each.forward_s),
               bench::format_seconds(each.backward_s), bench::format_bytes(each.held_bytes),
               bench::format_bytes(each.memory_bytes), verdict);
  }
  fmt::print("\n  held: buffers; memory: these and a rank's q, k, v, o, lse and gradients\n");
  fmt::print("\n");
  print_fastest(candidates, with_kernel, "slower", &Candidate::slower_links_s);
  print_fastest(candidates, with_kernel, "faster", &Candidate::faster_links_s);
  for (const Nearest& each : nearest) {
    const bench::Compared& measured = each.compared;
    fmt::print("  nearest measured, {}: {} where {} was predicted ({:.1f}%): {}\n", name_of(each.direction),
               bench::format_seconds(measured.measured_s), bench::format_seconds(measured.predicted_s),
               100 * measured.error(), printable(describe(measured.c)));
  }
}

// The candidates' cases, forward and backward.
template <class Visit>
void for_each_pass(const std::vector<Candidate>& candidates, bench::Case c, Visit visit) {
  for (const Candidate& candidate : candidates) {
    c.kernel = candidate.kernel;
    c.parallelism = candidate.parallelism;
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      c.direction = direction;
      visit(c);
    }
  }
}

std::vector<Nearest> nearest_measured(const std::vector<std::string>& paths, const Candidate& fastest,
                                      const bench::Case& problem, const bench::Machine& machine) {
  std::vector<Nearest> list;
  const std::vector<bench::Compared> cases = bench::measured_cases(paths, machine);
  for_each_pass({fastest}, problem, [&](const bench::Case& c) {
    if (const bench::Compared* found = bench::nearest(cases, c)) {
      list.push_back({c.direction, *found});
      list.back().compared.predicted_s = *bench::predict(found->c, machine).record.time_s;
    }
  });
  LONGSPAN_CHECK_INPUT(paths.empty() || !list.empty(), "--measured: no measured case of {} that {} describes",
                       fastest.parallelism.strategy, machine.name);
  return list;
}

// Results lines of every candidate, which `longspan report` draws.
void write_predictions(const report::OutputFile& file, const std::vector<Candidate>& candidates,
                       const bench::Case& problem, const bench::Machine& machine) {
  std::string text;
  for_each_pass(candidates, problem, [&](const bench::Case& c) {
    text += record::text_of(simulated_line(bench::predict(c, machine, bench::Band::kLinks), machine)) + "\n";
  });
  file.write(text);
}

}  // namespace

void add_advise_command(CLI::App& program) {
  auto options = std::make_shared<AdviseArguments>();
  CLI::App* command = program.add_subcommand(
      "advise", "Predict every kernel, strategy and degree for a problem on a machine, the fastest first");
  options->unread = {"kernel",    "deterministic", "sinks",      "softcap",   "alibi",    "strategy",
                     "direction", "ulysses",       "inner_ring", "placement", "sharding", "skip"};
  options->strategy = "ring-p2p";  // supports any number of ranks; every strategy takes its place in turn
  add_schedule_options(*command, *options);
  add_machine_options(*command, *options,
                      "each that takes the tensors, and with --workload the first in alphabetical order");
  command
      ->add_option("--workload", options->workload,
                   "instead of a mask: the steps of a workload, for which degrees are compared")
      ->type_name("FILE");
  command
      ->add_option(
          "--memory", options->memory,
          "bytes of a GPU for tensors, gradients and buffers, such as 40G; larger candidates do not fit")
      ->type_name("BYTES");
  command->add_flag("--shardings", options->shardings,
                    "also try the shardings that a ring does not choose by itself: contiguous, zigzag");
  command
      ->add_option("--measured", options->measured,
                   "results files: also show the measured case that is most like the fastest candidate")
      ->type_name("FILE");
  command
      ->add_option("--predictions", options->predictions,
                   "write the predictions of all candidates to this file, for `longspan report`")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "print JSON (keys: docs/reference/results.md)");
  command->footer(
      "Nothing runs on a device. `longspan simulate STRATEGY` shows a candidate rank by rank.\n"
      "Candidates within 3% of the fastest are too close to call.\n"
      "Examples:\n"
      "  longspan advise --machine data/machines/h200.json --ranks 4 --mask causal_document --seqlen 128K\n"
      "  longspan advise --machine data/machines/hgx-h100.json --topology 4x8 --transport nccl --mask causal "
      "--seqlen 256K\n"
      "  longspan advise --machine data/machines/h200.json --ranks 8 --workload workload.jsonl");
  command->callback([options] {
    const bench::Machine machine = bench::read_machine(options->machine);
    if (!options->workload.empty()) {
      for (const auto& [given, name] : {std::pair(!options->memory.empty(), "--memory"),
                                        {options->shardings, "--shardings"},
                                        {!options->measured.empty(), "--measured"},
                                        {!options->predictions.empty(), "--predictions"}})
        LONGSPAN_CHECK_INPUT(!given, "{} cannot be combined with --workload", name);
      return advise_on_workload(options->workload, *options, options->kernel_of(machine), machine,
                                options->json);
    }
    const double memory = bytes_of(options->memory);
    const bench::Case problem = schedule_case(*options, options->kernel);
    std::optional<report::OutputFile> file;
    if (!options->predictions.empty())
      file.emplace("--predictions", options->predictions,
                   report::OutputFile::Kind{"predictions", kPredictionsBegin},
                   std::vector<std::filesystem::path>(options->measured.begin(), options->measured.end()));
    const auto shardings = options->shardings ? bench::Shardings::kAll : bench::Shardings::kOwn;
    Advice advice;
    std::vector<Nearest> nearest;
    {
      const ProgressLine progress;
      advice = bench::advise(problem, machine, memory, shardings,
                             [&](const std::string& text) { progress.show(text); });
      nearest = nearest_measured(options->measured, advice.candidates.front(), problem, machine);
      if (file) write_predictions(*file, advice.candidates, problem, machine);
    }
    options->json ? print_json(advice, nearest, problem, machine)
                  : print_text(advice, nearest, problem, machine);
  });
}

}  // namespace longspan::cli
