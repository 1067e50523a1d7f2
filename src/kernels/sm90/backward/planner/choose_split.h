// How a backward pass is split into items, and in what order they are handed out: pure functions of the
// problem and of its tile map's columns. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

// Properties of a tile map's columns, in row tiles that key tiles visit, for the mean of all masks.
struct BackwardColumns {
  int64_t key_tiles = 0;
  int64_t tiles = 0;       // of all key tiles
  int64_t runs = 0;        // of consecutive row tiles
  int64_t longest = 0;     // of one key tile
  int64_t full_first = 0;  // of key tiles that begin with a run of at least kShortRun full tiles
  // Key tiles that begin with the very first row tile, and key tiles that end with the last one.
  int64_t begin_together = 0, end_together = 0;
};
// Tiles of the map have `rows` queries.
BackwardColumns columns_of(const CompiledMap& map, int32_t rows, int64_t masks);

// The cost of equal items: their time, with wave quantization and each item's beginning and end, over the
// time of their tiles alone. `rounds` is the number of items for each CTA, `tiles` the number of tiles in an
// item.
double cost_of_equal_items(double rounds, double tiles);

// The candidates for `workers` CTAs or streams. There are several only if additions are in order; then a
// simulation prices them.
std::vector<BackwardSplit> choose_splits(const Problem& problem, const BackwardShape& shape,
                                         const BackwardColumns& columns, int64_t workers);

}  // namespace longspan::sm90
