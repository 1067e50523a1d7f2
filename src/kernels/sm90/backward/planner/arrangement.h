// All that a backward pass' blocks follow: tiles, items in the order in which they are taken, the walk
// through them, and the order of additions. Host code without CUDA.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/schedule.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {

struct BackwardArrangement {
  BackwardGrid grid;
  BackwardSplit split;
  BackwardItems items;
  // BackwardStore::kOrdered. Without BackwardSplit::by_time there are turns alone, for all heads of an
  // item.
  BackwardSchedule schedule;
  int32_t row_tiles = 0, key_tiles = 0;
  int32_t section_heads = 1, last_section = 0, last_list = 0;  // as BackwardParams has them
  int32_t pass_ctas = 0;                                       // likewise
  bool rests = false;  // the second warpgroup, in partial tiles that say so (kUpperHalfUnseen)
};

// For a GPU of so many multiprocessors.
BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape, int64_t units);

}  // namespace longspan::sm90
