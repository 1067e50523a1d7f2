// Everything that the CTAs of a backward pass follow: tiles, items in the order in which they are taken, the
// walk through each item, and the order of additions to dq. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/pass_ctas.h"
#include "kernels/sm90/backward/planner/schedule.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {

struct BackwardArrangement : BackwardJobs {
  BackwardShape shape;  // with the tile that was taken
  BackwardGrid grid;
  BackwardSplit split;
  BackwardItems items;
  // BackwardStore::kOrdered only. Without BackwardSplit::by_time it has turns alone, which all heads of an
  // item share.
  BackwardSchedule schedule;
  // As in BackwardParams.
  std::vector<uint8_t> visited_once;
  int32_t key_tiles = 0, last_list = 0, pass_ctas = 0;
};

// The plan for a GPU of `units` SMs. Throws longspan::Error if the map is too large to number.
BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape, int64_t units);

}  // namespace longspan::sm90
