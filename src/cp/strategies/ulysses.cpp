#include "base/error.h"
#include "cp/strategies/blocks.h"
#include "cp/strategies/strategies.h"

namespace longspan {
namespace {

constexpr OptionSpec kOptions[] = {kSharding, kSkip};

Support supports(const Problem& problem, const Topology& topology, const StrategyOptions&) {
  if (topology.ranks() > problem.heads_q) {
    return {fmt::format("needs at most as many ranks as query heads: {} ranks, {} heads", topology.ranks(),
                        problem.heads_q)};
  }
  return {};
}

// One round: q, k and v go from the owners of tokens to the owners of heads. Each rank attends with its heads
// over the whole sequence, and o goes back.
Schedule schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                  std::span<const Ranges> owned) {
  const auto given = options.choice<Sharding>(kSharding);
  const Sharding sharding = given == Sharding::kAuto ? Sharding::kContiguous : given;
  const Grid grid(problem, topology.ranks(), 1, Placement::kHeadFirst, sharding, owned);
  Schedule schedule = begin_schedule("ulysses", grid);
  Round& round = schedule.forward.emplace_back();
  add_to_heads(round, schedule, grid, std::vector{Operand::kQ, Operand::kKV});
  for (int head = 0; head < grid.heads(); ++head) {
    for (const Grid::Heads& heads : grid.groups(head)) {
      const int32_t q = schedule.add_region({grid.tokens(0), heads.q});
      const int32_t kv = schedule.add_region({grid.tokens(0), heads.kv});
      round.attend.push_back({grid.rank(head, 0), q, kv});
    }
  }
  add_to_owners(round, schedule, grid, std::vector{Operand::kO});
  add_adjoint(schedule, true, !grid.replicates_kv());
  return schedule;
}

StrategyOptions resolve(const Problem&, const Topology& topology, StrategyOptions options) {
  return with_layout(std::move(options), topology.ranks(), 1, Sharding::kContiguous);
}

}  // namespace

const Strategy kUlysses{
    "ulysses", "all-to-all from tokens to heads, attention over the whole sequence, and back",
    0,         kOptions,
    supports,  schedule,
    resolve};

}  // namespace longspan
