// How a backward pass is split into items, and in what order they are handed out: pure functions of the
// problem and of its tile map's columns. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/pass_ctas.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

// Properties of a tile map's columns, in row tiles that key tiles visit, for the mean of all masks.
struct BackwardColumns {
  int64_t key_tiles = 0;
  int64_t tiles = 0;  // of all key tiles
  int64_t runs = 0;   // of consecutive row tiles
  // Key tiles that begin with the very first row tile, and key tiles that end with the last one.
  int64_t begin_together = 0, end_together = 0;
  int64_t begins = 0, ends = 0;  // row tiles in which key tiles of the first mask begin, and end
  // Of each key tile of the first mask, heaviest first: its tiles, and their time in full tiles.
  struct Column {
    int32_t key_tile = 0;
    int64_t tiles = 0;
    double time = 0;
  };
  std::vector<Column> columns;
};
BackwardColumns columns_of(const CompiledMap& map, int64_t masks);

// The time of a split without ordered additions, in tiles: that until the last of `workers` CTAs is done. The
// items of the last section are simulated; the others are taken to be spread evenly.
double time_of_split(const Problem& problem, const BackwardShape& shape, const BackwardColumns& columns,
                     const BackwardSplit& split, int64_t workers);

// The candidates for `workers` CTAs or streams.
std::vector<BackwardSplit> split_candidates(const Problem& problem, const BackwardShape& shape,
                                            const BackwardColumns& columns, int64_t workers);

// How key tiles are split into items (sections.cpp).
BackwardSharing sharing_of(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                           int64_t key_tiles, int64_t workers);

// `per_list`: items of a KV head.
BackwardSections sections_of(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                             int64_t per_list, int64_t workers);

}  // namespace longspan::sm90
