// Predicts the time of an attention kernel from the tiles that it visits, on a machine that need not be here.
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace longspan {

// One pass of a kernel on one device. The tiles are those that the kernel's planner makes of any mask; the
// times are what a multiprocessor takes for heads of 128 elements. They are fitted to measurements.
struct KernelPassCost {
  int64_t tile_rows = 128;  // query rows of a tile, counting the packed heads
  int64_t tile_keys = 128;  // keys of a tile; a tile that is visible in part costs as much as a full one
  int64_t most_pack = 1;    // the most query heads of a GQA group that share a row tile

  double tile_s = 0;      // for each tile that is visited
  double row_tile_s = 0;  // for each row tile, and for each key tile of a KV head: its beginning and end
  double key_tile_s = 0;
  double launch_s = 0;  // of the pass, whatever it computes
  double tail = 0;      // share of the longest row tile's time that multiprocessors are idle at the end
};

struct KernelCost {
  int64_t units = 1;  // multiprocessors
  KernelPassCost forward, backward;
  const KernelPassCost& of(Direction direction) const {
    return direction == Direction::kForward ? forward : backward;
  }
};

// What a pass does, over all heads.
struct TileWork {
  double tiles = 0, row_tiles = 0, key_tiles = 0;
  double longest = 0;  // tiles of the longest row tile
};

// The tiles that rows of `heads_q` query heads visit of `heads_kv` KV heads. `masks` holds one mask that all
// heads share, or one for each KV head.
TileWork tile_work(const HeadMasks& masks, int64_t heads_q, int64_t heads_kv, const KernelPassCost& pass);

double seconds_of(const TileWork& work, const KernelPassCost& pass, int64_t units, int64_t head_dim);

// The predicted time of one pass.
double estimate_s(const Problem& problem, Direction direction, const KernelCost& cost);

}  // namespace longspan
