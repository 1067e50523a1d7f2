// Turns: the order of additions to dq in a deterministic pass, if it is that of items (else see
// planner/schedule.h). The key tiles that visit a row tile add to it in the order of the map, which is that
// in which CTAs take them. Host code without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

inline constexpr size_t kTurnsAtOnce = 32;  // read by a warp at a time: so many follow the last one

struct BackwardTurns {
  std::vector<uint32_t> first;  // [masks, key_tiles]: where a key tile's turns begin
  std::vector<int32_t> turns;   // of each tile visited, in the order of the walk
};

// `map` is by columns. Each item walks down its rows or, with `descending`, up from the last one. Throws
// longspan::Error for 2^32 tiles or more.
BackwardTurns order_additions(const CompiledMap& map, bool descending);

}  // namespace longspan::sm90
