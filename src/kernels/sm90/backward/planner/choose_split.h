// How the backward pass' work is divided into items, and in what order these are handed out. Pure rules, of
// the problem and of what its tile map's columns are like. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

// What the columns of a tile map are like, in row tiles that key tiles visit; of a mean mask.
struct BackwardColumns {
  int64_t key_tiles = 0;
  int64_t tiles = 0;       // of all of them
  int64_t runs = 0;        // of such tiles, one after the other
  int64_t longest = 0;     // of one
  int64_t full_first = 0;  // of those that begin with a run of at least kShortRun full ones
  // Key tiles that begin with the first row tile of all, and that end with the last one.
  int64_t begin_together = 0, end_together = 0;
};
// The map's tiles have `rows` queries.
BackwardColumns columns_of(const CompiledMap& map, int32_t rows, int64_t masks);

// The cost of items that are all alike: the time that they take, wave quantization and an item's beginning
// and end included, over the time of their tiles alone. `rounds` is items for each CTA, `tiles` is tiles of
// an item.
double cost_of_equal_items(double rounds, double tiles);

// The ways that suit; if there are several, additions are in order and a simulation is to choose.
std::vector<BackwardSplit> choose_splits(const Problem& problem, const BackwardShape& shape,
                                         const BackwardColumns& columns, int64_t workers);

}  // namespace longspan::sm90
