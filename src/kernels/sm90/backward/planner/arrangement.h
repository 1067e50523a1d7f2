// Everything that the CTAs of a backward pass follow: tiles, items in the order in which they are taken, the
// walk through each item, and the order of additions to dq. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/schedule.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {

struct BackwardArrangement {
  BackwardGrid grid;
  BackwardSplit split;
  BackwardItems items;
  // BackwardStore::kOrdered only. Without BackwardSplit::by_time it has turns alone, which all heads of an
  // item share.
  BackwardSchedule schedule;
  int32_t row_tiles = 0, key_tiles = 0;
  std::vector<uint8_t> visited_once;                           // as in BackwardParams
  int32_t section_heads = 1, last_section = 0, last_list = 0;  // as in BackwardParams
  int32_t pass_ctas = 0;                                       // as in BackwardParams
};

// The plan for a GPU of `units` SMs. Throws longspan::Error if the map is too large to number.
BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape, int64_t units);

}  // namespace longspan::sm90
