// One pass of a schedule as a record, which `longspan plan --json` prints and the report draws.
#pragma once

#include "cp/schedule/account.h"
#include "record/record.h"

namespace longspan::bench {

// Moves are left out above kMostRanksDrawn ranks: the report cannot draw them.
inline constexpr int kMostRanksDrawn = 64;
record::PassPlan pass_plan(const Schedule& schedule, Direction direction, const Problem& problem,
                           const Cost& cost);

// The tokens of each rank: record::PassPlan::owned.
std::vector<std::vector<std::pair<int64_t, int64_t>>> owned_tokens(const Schedule& schedule);

}  // namespace longspan::bench
