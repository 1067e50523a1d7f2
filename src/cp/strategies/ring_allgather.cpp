#include "cp/strategies/blocks.h"
#include "cp/strategies/strategies.h"

namespace longspan {
namespace {

constexpr OptionSpec kOptions[] = {kSharding, kSkip};

Support supports(const Problem&, const Topology&, const StrategyOptions&) {
  return {};
}

// One round: each rank receives the KV of all others (or only what its rows see) and attends once. The KV
// gradients are summed at their owners.
Schedule schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                  std::span<const Ranges> owned) {
  const int ranks = topology.ranks();
  const Grid grid(problem, 1, ranks, Placement::kContextFirst, options.choice<Sharding>(kSharding), owned);
  Schedule schedule = begin_schedule("ring-allgather", grid);
  Round& round = schedule.forward.emplace_back();
  const Range kv_heads{0, problem.heads_kv};
  for (int rank = 0; rank < ranks; ++rank) {
    if (grid.tokens(rank).empty()) continue;
    const Ranges needed = options.flag(kSkip) ? needed_keys(problem, grid.tokens(rank), kv_heads)
                                              : Ranges{{0, problem.tokens_kv}};
    Ranges gathered;  // by source, so received data is read in place
    for (int source = 0; source < ranks; ++source) {
      const Ranges tokens = select(grid.tokens(source), needed);
      if (tokens.empty()) continue;
      gathered.insert(gathered.end(), tokens.begin(), tokens.end());
      if (source == rank) continue;
      round.in.push_back({Operand::kKV, false, false, source, rank, schedule.add_region({tokens, kv_heads})});
    }
    if (gathered.empty()) continue;
    const int32_t q = schedule.add_region({grid.tokens(rank), {0, problem.heads_q}});
    round.attend.push_back({rank, q, schedule.add_region({gathered, kv_heads})});
  }
  add_adjoint(schedule, true, false);
  return schedule;
}

}  // namespace

const Strategy kRingAllGather{"ring-allgather",
                              "one all-gather of KV, one attention; gradients reduce-scattered",
                              2,
                              kOptions,
                              supports,
                              schedule,
                              resolve_ring};

}  // namespace longspan
