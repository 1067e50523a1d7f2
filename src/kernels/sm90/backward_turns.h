// The order of the additions to dq that makes the backward pass give the same bits on every run: the key
// tiles that a row tile meets add to it in the order in which blocks take them on, each waiting for its turn.
// Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

struct BackwardTurns {
  bool descending = false;      // walk each key tile's row tiles from the last to the first
  std::vector<uint32_t> first;  // [masks, key_tiles], as CompiledMap::work: where an item's turns begin
  std::vector<int32_t> turns;   // of each tile visited, in the order of the walk
};

// Of a map by columns whose tiles have `rows` queries. The direction is the one in which `workers` blocks at
// a time, each with `heads` heads to go through, wait less for each other: from the diagonal of a causal mask
// down, say, short items would run after long ones, all at the same pace.
BackwardTurns order_additions(const CompiledMap& map, int32_t rows, int32_t workers, int32_t heads);

}  // namespace longspan::sm90
