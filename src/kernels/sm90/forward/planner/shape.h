// The shape of the forward kernel, chosen from the problem and the number of SMs, and its order of work.
#pragma once

#include "attention/problem.h"
#include "kernels/sm90/forward/planner/map.h"
#include "longspan/base.h"
#include "mask/lowering/tiling.h"

namespace longspan::sm90 {

// An instance of the kernel, and how rows are laid out in tiles.
struct ForwardShape {
  int columns = 128;   // keys of a tile
  int piece = 128;     // keys of a tile of the map; a tile is gathered from `columns / piece` of these
  int warpgroups = 2;  // of 64 rows: 2, or 3 or 4 in one stream
  int streams = 1;     // 1: all warpgroups share a row tile; 2: each has work items of its own
  int pack = 1;        // query heads of a GQA group that share a row tile: 1, 2, 4 or 8
  RowTiles row_tiles = RowTiles::kEven;
  int section_heads = 0;    // KV heads that are worked on together; 0: as many as suit L2
  bool heavy_first = true;  // row tiles of the last sections that take as long as a section come first
  bool paired = false;      // CTA pairs share K and V; only for masks whose rows all see the same keys

  int tile_rows() const { return 64 * warpgroups / streams; }
  int tokens() const { return tile_rows() / pack; }  // query tokens of a CTA's row tile
  TileShape tile_shape() const { return {tokens(), piece}; }
  friend bool operator==(const ForwardShape&, const ForwardShape&) = default;
};

// Whether head_dim is above 128: instances of their own, with plain tiles alone.
inline bool is_large(const Problem& problem) {
  return problem.head_dim > 128;
}

ForwardShape choose_forward_shape(const Problem& problem, const Device& device);

// For the map of this problem at shape.tile_shape().
WorkOrder choose_work_order(const Problem& problem, const ForwardShape& shape, const ForwardMap& map,
                            const Device& device);

}  // namespace longspan::sm90
