// A plan of context parallelism as JSON: what `longspan plan --json` prints and the report draws.
#pragma once

#include "cp/schedule/account.h"
#include "record/results.h"

namespace longspan::bench {

// {ranks, nodes, rounds, imbalance, sent_bytes, between_nodes_bytes, area, peak_copy_bytes: by rank;
// by_round: [{sent_bytes, between_nodes_bytes, area: by rank; moves}]}. `moves`, [operand, from, to, bytes]
// each, are left out beyond kMostRanksDrawn ranks, which nobody could draw.
inline constexpr int kMostRanksDrawn = 64;
Json pass_json(const Schedule& schedule, Direction direction, const Problem& problem, const Cost& cost);

// The tokens of each rank, as [begin, end] pairs.
Json owned_json(const Schedule& schedule);

}  // namespace longspan::bench
