// USP and LoongTrain: Ulysses over heads, a ring or a double ring over context.
#include "base/error.h"
#include "cp/strategies/blocks.h"
#include "cp/strategies/strategies.h"

namespace longspan {

namespace {

constexpr std::string_view kPlacements[] = {"head-first", "context-first"};  // in the order of Placement
constexpr OptionSpec kUlyssesDegree{
    .name = "ulysses",
    .help = "Ulysses degree; by default the largest that divides the KV heads",
    .least = 1,
    .most = 4096,
    .always_in_case = true};
constexpr OptionSpec kInnerRing{
    .name = "inner_ring", .help = "inner ring", .least = 1, .most = 4096, .always_in_case = true};
constexpr OptionSpec kPlacement{.name = "placement",
                                .help = "head-first or context-first: which axis stays within a node",
                                .kind = OptionKind::kChoice,
                                .choices = kPlacements,
                                .preset = "head-first",
                                .always_in_case = true};

constexpr OptionSpec kUspOptions[] = {kUlyssesDegree, kPlacement, kSharding, kSkip};
constexpr OptionSpec kLoongTrainOptions[] = {kUlyssesDegree, kInnerRing, kPlacement, kSharding, kSkip};

// The given degree, or else the largest u that divides the ranks and the KV heads.
int degree_of(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  if (options.has(kUlyssesDegree)) return static_cast<int>(options.count(kUlyssesDegree));
  for (int u = topology.ranks(); u > 1; --u) {
    if (topology.ranks() % u == 0 && problem.heads_kv % u == 0) return u;
  }
  return 1;
}

// The windows of the double ring over `ring` positions. If no inner ring is given, this is the largest
// divisor w with w <= ring / w.
int windows_of(int ring, const StrategyOptions& options) {
  if (options.has(kInnerRing)) return ring / static_cast<int>(options.count(kInnerRing));
  int windows = 1;
  for (int w = 1; w * w <= ring; ++w) {
    if (ring % w == 0) windows = w;
  }
  return windows;
}

Support supports(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  if (options.has(kUlyssesDegree)) {
    const int64_t u = options.count(kUlyssesDegree);
    if (topology.ranks() % u != 0)
      return {fmt::format("Ulysses degree {} does not divide the {} ranks", u, topology.ranks())};
    if (u > problem.heads_q) {
      return {
          fmt::format("needs a Ulysses degree of at most the {} query heads, not {}", problem.heads_q, u)};
    }
  }
  const int ring = topology.ranks() / degree_of(problem, topology, options);
  if (options.has(kInnerRing) && ring % options.count(kInnerRing) != 0) {
    return {fmt::format("inner ring {} does not divide the ring of {}", options.count(kInnerRing), ring)};
  }
  return {};
}

}  // namespace

Schedule hybrid_schedule(std::string_view name, const Problem& problem, const Topology& topology,
                         const StrategyOptions& options, std::span<const Ranges> owned, int ulysses_degree,
                         int windows) {
  const int ring = topology.ranks() / ulysses_degree;
  const auto given = options.choice<Sharding>(kSharding);
  const Sharding sharding = given == Sharding::kAuto && ring == 1 ? Sharding::kContiguous : given;
  const Grid grid(problem, ulysses_degree, ring, options.choice<Placement>(kPlacement), sharding, owned);
  Schedule schedule = begin_schedule(name, grid);
  // The all-to-all to heads comes before the first round of the ring, and the one back is a separate round
  // after the last.
  const size_t rounds = static_cast<size_t>(ring) + (ulysses_degree > 1 ? 1 : 0);
  schedule.forward.resize(rounds);
  schedule.backward.resize(rounds);
  add_to_heads(schedule.forward.front(), schedule, grid, std::vector{Operand::kQ, Operand::kKV});
  add_to_heads(schedule.backward.front(), schedule, grid, std::vector{Operand::kDo});
  add_ring(schedule, problem, grid, {windows, ring / windows}, options.flag(kSkip));
  add_to_owners(schedule.forward.back(), schedule, grid, std::vector{Operand::kO});
  add_to_owners(schedule.backward.back(), schedule, grid, std::vector{Operand::kDq, Operand::kDkv});
  return schedule;
}

StrategyOptions with_layout(StrategyOptions options, int ulysses, int inner, Sharding automatic) {
  options.set(kUlyssesDegree.name, ulysses).set(kInnerRing.name, inner);
  options.set(kPlacement.name, *options.value_of(kPlacement)).set(kSkip.name, options.flag(kSkip));
  const auto given = options.choice<Sharding>(kSharding);
  options.set(kSharding.name, std::string(name_of(given == Sharding::kAuto ? automatic : given)));
  return options;
}

Sharding sharding_of_ring(int ring) {
  return ring == 1 ? Sharding::kContiguous : Sharding::kPerDocument;
}

StrategyOptions resolve_ring(const Problem&, const Topology& topology, StrategyOptions options) {
  return with_layout(std::move(options), 1, topology.ranks(), sharding_of_ring(topology.ranks()));
}

namespace {

Schedule usp(const Problem& problem, const Topology& topology, const StrategyOptions& options,
             std::span<const Ranges> owned) {
  return hybrid_schedule("usp", problem, topology, options, owned, degree_of(problem, topology, options), 1);
}

StrategyOptions resolve_usp(const Problem& problem, const Topology& topology, StrategyOptions options) {
  const int u = degree_of(problem, topology, options), ring = topology.ranks() / u;
  return with_layout(std::move(options), u, ring, sharding_of_ring(ring));
}

Schedule loongtrain(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                    std::span<const Ranges> owned) {
  const int u = degree_of(problem, topology, options), ring = topology.ranks() / u;
  return hybrid_schedule("loongtrain", problem, topology, options, owned, u, windows_of(ring, options));
}

StrategyOptions resolve_loongtrain(const Problem& problem, const Topology& topology,
                                   StrategyOptions options) {
  const int u = degree_of(problem, topology, options), ring = topology.ranks() / u;
  const int inner = ring / windows_of(ring, options);
  return with_layout(std::move(options), u, inner, sharding_of_ring(ring));
}

}  // namespace

const Strategy kUsp{"usp",      "Ulysses in groups, a ring over the groups", 3, kUspOptions, supports, usp,
                    resolve_usp};
const Strategy kLoongTrain{"loongtrain",
                           "Ulysses in groups, a double ring over the groups",
                           5,
                           kLoongTrainOptions,
                           supports,
                           loongtrain,
                           resolve_loongtrain};

}  // namespace longspan
