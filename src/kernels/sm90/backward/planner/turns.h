// The order of the additions to dq that makes the backward pass give the same bits on every run, where it is
// that of items (else see planner/schedule.h): the key tiles that a row tile meets add to it in the order of
// the map, in which blocks take them on, each waiting for its turn. Host code without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

inline constexpr size_t kTurnsAtOnce = 32;  // a warp reads so many: as many must lie behind the last one

struct BackwardTurns {
  std::vector<uint32_t> first;  // [masks, key_tiles]: where a key tile's turns begin
  std::vector<int32_t> turns;   // of each tile visited, in the order of the walk
};

// Of a map by columns whose tiles have `rows` queries, which each item walks down, or from the last one up.
BackwardTurns order_additions(const CompiledMap& map, int32_t rows, bool descending);

}  // namespace longspan::sm90
