// The strategies, each in a file of its own; strategy.cpp holds their table.
#pragma once

#include "cp/strategies/strategy.h"

namespace longspan {

// DeepSpeed-Ulysses (arXiv 2309.14509): tokens are exchanged for heads, attention is over the whole sequence.
extern const Strategy kUlysses;
// Ring attention (arXiv 2310.01889) with zigzag sharding: KV travels rank by rank, results merge by lse.
extern const Strategy kRingP2P;
// The ring's result with one all-gather of KV, as in Llama 3 (arXiv 2407.21783).
extern const Strategy kRingAllGather;
// USP (arXiv 2405.07719): Ulysses in groups of u, a ring over the groups.
extern const Strategy kUsp;
// LoongTrain (arXiv 2406.18485): Ulysses in groups of u, a double ring over the groups.
extern const Strategy kLoongTrain;
// Ours: chunks dealt for equal load, only needed KV travels.
extern const Strategy kBalanced;

// Every strategy is a grid: `ulysses` ranks share the heads, the others form a ring, which visits `inner` of
// its positions at a time. Writes this layout into the options, and what Sharding::kAuto stands for.
StrategyOptions with_layout(StrategyOptions options, int ulysses, int inner, Sharding automatic);

// The sharding of a ring of so many positions, where none was given.
Sharding sharding_of_ring(int ring);

// resolve() of a plain ring over all ranks.
StrategyOptions resolve_ring(const Problem& problem, const Topology& topology, StrategyOptions options);

// The rounds of a hybrid of `ulysses_degree` head positions and one ring of `windows` windows over the rest.
Schedule hybrid_schedule(std::string_view name, const Problem& problem, const Topology& topology,
                         const StrategyOptions& options, int ulysses_degree, int windows);

}  // namespace longspan
