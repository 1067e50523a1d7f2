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

// The largest u that divides the ranks and the KV heads: the Ulysses degree of a hybrid that was given none.
int default_ulysses_degree(const Problem& problem, const Topology& topology);

// The windows of LoongTrain's double ring over `ring` positions: the largest divisor w with w <= ring / w.
int default_windows(int ring);

// What USP and LoongTrain ask of their options.
Support supports_hybrid(const Problem& problem, const Topology& topology, const StrategyOptions& options);

// A hybrid of u heads positions and one ring of the given order over the rest.
Schedule hybrid_schedule(std::string_view name, const Problem& problem, const Topology& topology,
                         const StrategyOptions& options, int ulysses_degree, int windows);

}  // namespace longspan
