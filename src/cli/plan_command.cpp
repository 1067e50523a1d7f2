// `longspan plan`: plans a context-parallel strategy for any topology: which tokens each rank owns, sends and
// attends to, and the cost in bytes, load and memory.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/printable.h"
#include "bench/measure/mask_source.h"
#include "bench/measure/pass_plan.h"
#include "bench/spec/option_json.h"
#include "bench/spec/values.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "cli/schedule_case.h"
#include "cp/schedule/account.h"
#include "cp/strategies/strategy.h"
#include "record/record_json.h"

namespace longspan::cli {
namespace {

using bench::Case;
using bench::format_bytes;
using record::Json;

// Axes of a run that a plan does not read: no kernel runs, and both passes of one mask are planned.
const std::vector<std::string_view> kUnread = {"kernel",  "direction", "masks",    "deterministic", "sinks",
                                               "softcap", "alibi",     "strategy", "transport"};

struct PlanArguments : ScheduleArguments {
  bool json = false;
};

struct Planned {
  Case c;
  Problem problem;
  Topology topology;
  StrategyOptions options;  // with unset options filled in
  Schedule schedule;
  Cost cost;
  double build_s = 0, check_s = 0;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Planned plan(const PlanArguments& options) {
  const ProgressLine progress;
  Planned p;
  p.c = schedule_case(options, "none");
  progress.show("drawing the mask");
  DrawnMask drawn = bench::MaskSource(p.c).next();
  Problem& problem = p.problem;
  problem.tokens_q = drawn.masks.front().rows();
  problem.tokens_kv = drawn.masks.front().columns();
  problem.heads_q = p.c.heads_q;
  problem.heads_kv = p.c.heads_kv;
  problem.head_dim = p.c.head_dim;
  problem.head_dim_v = p.c.head_dim_v;
  problem.dtype = p.c.dtype;
  problem.masks = std::make_shared<const HeadMasks>(std::move(drawn.masks));
  problem.check();
  LONGSPAN_CHECK_INPUT(problem.tokens_q == problem.tokens_kv,
                       "mask '{}' has {} rows and {} columns; context parallelism needs a square mask",
                       p.c.mask, problem.tokens_q, problem.tokens_kv);
  p.topology = p.c.parallelism.topology();
  const Strategy& strategy = strategy_from_name(p.c.parallelism.strategy);
  // Each rank sends to each other one in most strategies: ring-p2p on 1,024 ranks takes 450 MiB.
  constexpr double kBytesPerPair = 450;
  const double ranks = p.topology.ranks();
  check_host_memory(kBytesPerPair * ranks * ranks, fmt::format("the moves between {} ranks", ranks));
  const Support support = strategy.supports(problem, p.topology, p.c.parallelism.options);
  LONGSPAN_CHECK_INPUT(support, "{} {}", strategy.name, support.reason);
  progress.show(fmt::format("planning {} on {} ranks", strategy.name, p.topology.ranks()));
  p.options = strategy.resolve(problem, p.topology, p.c.parallelism.options);
  p.build_s =
      seconds_of([&] { p.schedule = strategy.schedule(problem, p.topology, p.c.parallelism.options); });
  progress.show("checking that each visible pair is attended exactly once");
  p.check_s = seconds_of([&] { check(p.schedule, problem); });
  progress.show("adding up bytes, load and memory");
  p.cost = cost_of(p.schedule, problem, p.topology);
  return p;
}

void print_json(const Planned& p) {
  Json workload = bench::to_json(p.c);
  workload.erase("kernel");
  workload.erase("direction");
  Json json = {{"case", std::move(workload)},
               {"topology", {{"nodes", p.topology.nodes}, {"devices", p.topology.devices}}}};
  for (const TableOption& option : strategy_options()) {
    const OptionValue* value = p.options.find(option.spec.name);
    if (value == nullptr) continue;
    const bool* flag = std::get_if<bool>(value);
    json[std::string(option.spec.name)] = flag != nullptr ? Json(*flag) : Json(bench::to_json(*value));
  }
  json["area"] = p.problem.area();
  json["build_s"] = p.build_s;
  json["check_s"] = p.check_s;
  json["owned"] = bench::owned_tokens(p.schedule);
  json["forward"] = to_json(bench::pass_plan(p.schedule, Direction::kForward, p.problem, p.cost));
  json["backward"] = to_json(bench::pass_plan(p.schedule, Direction::kBackward, p.problem, p.cost));
  fmt::print("{}\n", json.dump());
}

std::string bytes(int64_t value) {
  return format_bytes(static_cast<double>(value));
}

int64_t most(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

int64_t peak_bytes(const Planned& p, const PassCost& cost, size_t rank) {
  return cost.peak_elements[rank] * static_cast<int64_t>(size_of(p.problem.dtype));
}

void print_pass(const Planned& p, Direction direction) {
  const PassCost& cost = p.cost.of(direction);
  int64_t peak = 0;
  for (size_t rank = 0; rank < cost.area.size(); ++rank) peak = std::max(peak, peak_bytes(p, cost, rank));
  fmt::print(
      "  {:<12} {} rounds; at most {} sent per rank ({} within a node, {} between nodes), {} in total\n",
      name_of(direction), cost.rounds.size(), bytes(cost.most_sent()), bytes(most(cost.sent_within)),
      bytes(most(cost.sent_between)), bytes(cost.all_sent()));
  fmt::print(
      "  {:<12} largest load {:.3f} of the mean; copies of other ranks' data take at most {} per rank\n", "",
      cost.imbalance, bytes(peak));
}

// "0-6,9" of ascending numbers.
std::string ranges_text(const std::vector<int32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!text.empty()) text += ",";
    text += i == j ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[j]);
    i = j + 1;
  }
  return text;
}

// A table of ranks by rounds: the sources of the keys that arrive, and the rank's work in the round as a
// share of a rank's mean work in the pass.
void print_rounds(const Planned& p) {
  constexpr size_t kMostRounds = 16;
  constexpr int kMostRanks = 16;
  const auto& rounds = p.schedule.forward;
  if (rounds.size() > kMostRounds || p.schedule.ranks > kMostRanks) return;
  const auto ranks = static_cast<size_t>(p.schedule.ranks);
  const std::vector<int64_t>& area = p.cost.forward.area;
  const double mean =
      static_cast<double>(std::accumulate(area.begin(), area.end(), int64_t{0})) / static_cast<double>(ranks);
  std::vector<std::vector<std::string>> cells(ranks, std::vector<std::string>(rounds.size()));
  std::vector<size_t> widths(rounds.size(), 7);
  for (size_t i = 0; i < rounds.size(); ++i) {
    std::vector<std::vector<int32_t>> sources(ranks);
    for (const Move& move : rounds[i].in) {
      if (move.what == Operand::kKV) sources[move.dst].push_back(move.src);
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      auto& from = sources[rank];
      std::sort(from.begin(), from.end());
      from.erase(std::unique(from.begin(), from.end()), from.end());
      const double share = mean > 0 ? static_cast<double>(p.cost.forward.rounds[i].area[rank]) / mean : 0;
      cells[rank][i] =
          fmt::format("{}{:.0f}%", from.empty() ? "" : "<" + ranges_text(from) + " ", 100 * share);
      widths[i] = std::max(widths[i], cells[rank][i].size());
    }
  }
  fmt::print(
      "\n  forward, ranks by rounds: <SOURCES of the keys that arrive, and the work over the rank mean\n");
  fmt::print("  {:>4}", "rank");
  for (size_t i = 0; i < rounds.size(); ++i) fmt::print("  {:>{}}", fmt::format("round {}", i), widths[i]);
  fmt::print("\n");
  for (size_t rank = 0; rank < ranks; ++rank) {
    fmt::print("  {:>4}", rank);
    for (size_t i = 0; i < rounds.size(); ++i) fmt::print("  {:>{}}", cells[rank][i], widths[i]);
    fmt::print("\n");
  }
}

void print_ranks(const Planned& p) {
  constexpr size_t kMost = 32;
  const PassCost &forward = p.cost.forward, &backward = p.cost.backward;
  const size_t ranks = forward.area.size();
  const double mean =
      static_cast<double>(std::accumulate(forward.area.begin(), forward.area.end(), int64_t{0})) /
      static_cast<double>(ranks);
  fmt::print("\n  {:>4}  {:>9}  {:>6}  {:>10}  {:>7}  {:>12}  {:>13}  {:>11}  {:>12}\n", "rank", "tokens",
             "ranges", "area", "of mean", "sent forward", "sent backward", "copies fwd", "copies bwd");
  for (size_t rank = 0; rank < std::min(ranks, kMost); ++rank) {
    const Ranges& owned = p.schedule.owned[rank];
    fmt::print("  {:>4}  {:>9}  {:>6}  {:>10.3g}  {:>7.3f}  {:>12}  {:>13}  {:>11}  {:>12}\n", rank,
               count(owned), owned.size(), static_cast<double>(forward.area[rank]),
               mean > 0 ? static_cast<double>(forward.area[rank]) / mean : 0, bytes(forward.sent(rank)),
               bytes(backward.sent(rank)), bytes(peak_bytes(p, forward, rank)),
               bytes(peak_bytes(p, backward, rank)));
  }
  if (ranks > kMost) fmt::print("  ... {} more ranks; --json lists all\n", ranks - kMost);
}

void print_text(const Planned& p) {
  fmt::print("{} on {} ranks, {} node{} of {}: {} {}, {}:{} heads of {}, {}\n", p.schedule.strategy,
             p.schedule.ranks, p.topology.nodes, p.topology.nodes == 1 ? "" : "s", p.topology.devices,
             printable(p.c.mask), format_length(p.problem.tokens_q), p.problem.heads_q, p.problem.heads_kv,
             p.problem.head_dim, name_of(p.problem.dtype));
  std::vector<std::string> option_texts;
  for (const OptionSpec& option : strategy_from_name(p.c.parallelism.strategy).options) {
    if (const std::optional<OptionValue> value = p.options.value_of(option))
      option_texts.push_back(fmt::format("{} {}", option.name, to_text(*value)));
  }
  fmt::print("  {:<12} {}\n", "options", fmt::join(option_texts, ", "));
  fmt::print("  {:<12} {:.4g} visible pairs, summed over query heads\n", "area",
             static_cast<double>(p.problem.area()));
  print_pass(p, Direction::kForward);
  print_pass(p, Direction::kBackward);
  fmt::print("  {:<12} built in {}, checked in {}: each visible pair is attended exactly once\n", "schedule",
             bench::format_seconds(p.build_s), bench::format_seconds(p.check_s));
  print_rounds(p);
  print_ranks(p);
}

}  // namespace

void add_plan_command(CLI::App& program) {
  auto options = std::make_shared<PlanArguments>();
  CLI::App* command = program.add_subcommand(
      "plan", "Plan context parallelism on any number of ranks: rounds, bytes, load and memory of each rank");
  options->unread = kUnread;
  add_strategy_argument(*command, *options)->required();
  add_schedule_options(*command, *options);
  command->add_flag("--json", options->json, "print the plan as JSON (keys: docs/reference/results.md)");
  command->footer(
      "Nothing runs on a device. A plan for 1,024 GPUs takes seconds.\n"
      "Examples:\n"
      "  longspan plan ring-p2p --ranks 8 --mask causal --seqlen 64K\n"
      "  longspan plan usp --topology 4x8 --ulysses 8 --mask causal_document --lengths long-mix --seqlen 1M\n"
      "  longspan plan balanced --ranks 8 --mask share_question --seqlen 64K --json > plan.json");
  command->callback([options] {
    const Planned planned = plan(*options);
    options->json ? print_json(planned) : print_text(planned);
  });
}

}  // namespace longspan::cli
