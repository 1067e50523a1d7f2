// USP and LoongTrain: Ulysses over heads, a ring or a double ring over context.
#include "base/error.h"
#include "cp/strategies/blocks.h"
#include "cp/strategies/strategies.h"

namespace longspan {

int default_ulysses_degree(const Problem& problem, const Topology& topology) {
  for (int u = topology.ranks(); u > 1; --u) {
    if (topology.ranks() % u == 0 && problem.heads_kv % u == 0) return u;
  }
  return 1;
}

int default_windows(int ring) {
  int windows = 1;
  for (int w = 1; w * w <= ring; ++w) {
    if (ring % w == 0) windows = w;
  }
  return windows;
}

Support supports_hybrid(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  const int u = options.ulysses_degree;
  if (u != 0 && (u < 1 || topology.ranks() % u != 0)) {
    return {fmt::format("Ulysses degree {} does not divide the {} ranks", u, topology.ranks())};
  }
  if (u > problem.heads_q) {
    return {fmt::format("needs a Ulysses degree of at most the {} query heads, not {}", problem.heads_q, u)};
  }
  const int r = topology.ranks() / (u != 0 ? u : default_ulysses_degree(problem, topology));
  if (options.inner_ring != 0 && (options.inner_ring < 1 || r % options.inner_ring != 0)) {
    return {fmt::format("inner ring {} does not divide the ring of {}", options.inner_ring, r)};
  }
  return {};
}

Schedule hybrid_schedule(std::string_view name, const Problem& problem, const Topology& topology,
                         const StrategyOptions& options, int ulysses_degree, int windows) {
  const int ring = topology.ranks() / ulysses_degree;
  const Sharding sharding =
      options.sharding == Sharding::kAuto && ring == 1 ? Sharding::kContiguous : options.sharding;
  const Grid grid(problem, ulysses_degree, ring, options.placement, sharding);
  Schedule schedule = begin_schedule(name, grid);
  // The exchanges of heads stand before the first round of the ring, and in a round of their own after its
  // last.
  const size_t rounds = static_cast<size_t>(ring) + (ulysses_degree > 1 ? 1 : 0);
  schedule.forward.resize(rounds);
  schedule.backward.resize(rounds);
  add_to_heads(schedule.forward.front(), schedule, grid, std::vector{Operand::kQ, Operand::kKV});
  add_to_heads(schedule.backward.front(), schedule, grid, std::vector{Operand::kDo});
  add_ring(schedule, problem, grid, {windows, ring / windows}, options.skip_unneeded);
  add_to_owners(schedule.forward.back(), schedule, grid, std::vector{Operand::kO});
  add_to_owners(schedule.backward.back(), schedule, grid, std::vector{Operand::kDq, Operand::kDkv});
  return schedule;
}

namespace {

int degree_of(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  return options.ulysses_degree != 0 ? options.ulysses_degree : default_ulysses_degree(problem, topology);
}

Schedule usp(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  return hybrid_schedule("usp", problem, topology, options, degree_of(problem, topology, options), 1);
}

Schedule loongtrain(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  const int u = degree_of(problem, topology, options), ring = topology.ranks() / u;
  const int windows = options.inner_ring != 0 ? ring / options.inner_ring : default_windows(ring);
  return hybrid_schedule("loongtrain", problem, topology, options, u, windows);
}

}  // namespace

const Strategy kUsp{"usp", "Ulysses in groups, a ring over the groups", supports_hybrid, usp};
const Strategy kLoongTrain{"loongtrain", "Ulysses in groups, a double ring over the groups", supports_hybrid,
                           loongtrain};

}  // namespace longspan
