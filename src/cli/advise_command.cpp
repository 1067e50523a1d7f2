// `longspan advise`: orders the strategies that a problem and a machine allow by their predicted time.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/parse.h"
#include "base/printable.h"
#include "bench/simulate/advise.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/machine_option.h"
#include "cli/progress_line.h"
#include "cli/schedule_case.h"
#include "cli/workload_advice.h"
#include "record/json.h"

namespace longspan::cli {
namespace {

using bench::Candidate;
using record::Json;

struct AdviseArguments : ScheduleArguments, MachineArguments {
  std::string workload;
  bool json = false;
};

bool too_close(const Candidate& candidate, const Candidate& best) {
  return candidate.time_s() < (1 + bench::kTooClose) * best.time_s();
}

void print_json(const std::vector<Candidate>& candidates, const bench::Case& problem,
                const bench::Machine& machine) {
  Json list = Json::array();
  for (const Candidate& candidate : candidates) {
    nlohmann::json parallelism = nlohmann::json::object();
    add_to_json(candidate.parallelism, parallelism);
    Json entry(parallelism);
    entry["forward_s"] = candidate.forward_s;
    entry["backward_s"] = candidate.backward_s;
    entry["slower_links_s"] = candidate.slower_links_s;
    entry["faster_links_s"] = candidate.faster_links_s;
    if (candidate.held_bytes > 0) entry["held_bytes"] = candidate.held_bytes;
    entry["too_close"] = too_close(candidate, candidates.front());
    list.push_back(std::move(entry));
  }
  const std::string transport(name_of(problem.parallelism.transport));
  const Json json = {{"machine", {{"name", machine.name}, {"measured", machine.measured(transport)}}},
                     {"mask", problem.mask},
                     {"seqlen", problem.seqlen},
                     {"candidates", std::move(list)}};
  fmt::print("{}\n", record::text_of(json));
}

// The fastest candidate if all links were slower, or faster.
void print_fastest(const std::vector<Candidate>& candidates, const char* links, double Candidate::*time) {
  const Candidate& best =
      *std::min_element(candidates.begin(), candidates.end(),
                        [&](const Candidate& a, const Candidate& b) { return a.*time < b.*time; });
  fmt::print("  with links a quarter {}: {}, {}\n", links, describe_strategy(best.parallelism),
             bench::format_seconds(best.*time));
}

void print_text(const std::vector<Candidate>& candidates, const bench::Case& problem,
                const bench::Machine& machine) {
  const Topology topology = problem.parallelism.topology();
  fmt::print("{} {}, {}:{} heads of {}, {}, on {}x{} GPUs: predicted\n", printable(problem.mask),
             format_length(problem.seqlen), problem.heads_q, problem.heads_kv, problem.head_dim,
             name_of(problem.dtype), topology.nodes, topology.devices);
  fmt::print("{}\n", machine_line(machine));
  fmt::print("  {:<38}  {:>9}  {:>9}  {:>9}  {:>9}\n", "strategy", "both", "forward", "backward", "held");
  const Candidate& best = candidates.front();
  for (const Candidate& each : candidates) {
    const double more = 100 * (each.time_s() / best.time_s() - 1);
    const std::string verdict = &each == &best          ? "fastest"
                                : too_close(each, best) ? "too close to call"
                                                        : fmt::format("{:.0f}% slower", more);
    fmt::print("  {:<38}  {:>9}  {:>9}  {:>9}  {:>9}  {}\n", describe_strategy(each.parallelism),
               bench::format_seconds(each.time_s()), bench::format_seconds(each.forward_s),
               bench::format_seconds(each.backward_s),
               each.held_bytes > 0 ? bench::format_bytes(each.held_bytes) : "-", verdict);
  }
  fmt::print("\n");
  print_fastest(candidates, "slower", &Candidate::slower_links_s);
  print_fastest(candidates, "faster", &Candidate::faster_links_s);
}

}  // namespace

void add_advise_command(CLI::App& program) {
  auto options = std::make_shared<AdviseArguments>();
  CLI::App* command = program.add_subcommand(
      "advise", "Predict every strategy and degree for a problem on a machine, the fastest first");
  options->unread = {"kernel",     "deterministic", "strategy", "direction", "ulysses",
                     "inner_ring", "placement",     "sharding", "skip"};
  options->strategy = "ring-p2p";  // supports any number of ranks; every strategy takes its place in turn
  add_schedule_options(*command, *options);
  add_machine_options(*command, *options);
  command
      ->add_option("--workload", options->workload,
                   "instead of a mask: the steps of a workload, for which degrees are compared")
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
    if (!options->workload.empty())
      return advise_on_workload(options->workload, *options, options->kernel_of(machine), machine,
                                options->json);
    const bench::Case problem = schedule_case(*options, options->kernel_of(machine));
    std::vector<Candidate> candidates;
    {
      const ProgressLine progress;
      candidates = bench::advise(problem, machine, [&](const std::string& text) { progress.show(text); });
    }
    options->json ? print_json(candidates, problem, machine) : print_text(candidates, problem, machine);
  });
}

}  // namespace longspan::cli
