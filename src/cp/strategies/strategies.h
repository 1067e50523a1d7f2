// The strategies, each defined in its own file; strategies.cpp holds their table.
#pragma once

#include "cp/strategies/strategy.h"

namespace longspan {

// DeepSpeed-Ulysses (arXiv 2309.14509): tokens are exchanged for heads; attention is over the whole sequence.
extern const Strategy kUlysses;
// Ring attention (arXiv 2310.01889) with zigzag sharding: KV is sent rank by rank, results are merged by lse.
extern const Strategy kRingP2P;
// One all-gather of KV instead of a ring, as in Llama 3 (arXiv 2407.21783).
extern const Strategy kRingAllGather;
// USP (arXiv 2405.07719): Ulysses in groups of u, a ring over the groups.
extern const Strategy kUsp;
// LoongTrain (arXiv 2406.18485): Ulysses in groups of u, a double ring over the groups.
extern const Strategy kLoongTrain;
// Our own: chunks are assigned for equal load, and only needed KV is sent.
extern const Strategy kBalanced;

// Every strategy is a grid: `ulysses` ranks share the heads, and the groups form a ring, which visits `inner`
// positions at a time. Writes this layout into the options and replaces Sharding::kAuto by `automatic`.
StrategyOptions with_layout(StrategyOptions options, int ulysses, int inner, Sharding automatic);

// The default sharding of a ring with `ring` positions.
Sharding sharding_of_ring(int ring);

// resolve() of a plain ring over all ranks.
StrategyOptions resolve_ring(const Problem& problem, const Topology& topology, StrategyOptions options);

// The schedule of a hybrid: `ulysses_degree` head positions, and one ring with `windows` windows over the
// context positions.
Schedule hybrid_schedule(std::string_view name, const Problem& problem, const Topology& topology,
                         const StrategyOptions& options, std::span<const Ranges> owned, int ulysses_degree,
                         int windows);

}  // namespace longspan
