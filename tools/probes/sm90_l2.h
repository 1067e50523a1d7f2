// What L2 sees of a backward plan of sm90: a run of all CTAs on a model of the cache. Host code.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan {

struct L2Run {
  double time = 0;    // of all tiles over the mean of a CTA's
  double missed = 0;  // bytes of a tile that L2 does not have: q and do, and dq, which is read and written
  double moved = 0;   // bytes of a tile
};

// Every tile takes equally long, but for 2 % at random, and an item's ends as long as the planner says. L2
// has `l2_bytes` and keeps what was used last: the rows of q and do, and dq's sums. Pass CTAs and turns are
// left out.
L2Run run_on_l2(const Problem& problem, const sm90::BackwardShape& shape,
                const sm90::BackwardArrangement& plan, int64_t units, int64_t l2_bytes);

}  // namespace longspan
