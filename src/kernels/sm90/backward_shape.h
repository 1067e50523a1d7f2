// The tile shape of the backward kernel, chosen by the problem alone.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "mask/tile_map.h"

namespace longspan::sm90 {

inline constexpr int kBackwardKeys = 128;  // of a key tile: 64 for each of two warpgroups

// How a tile's share of dq is added to its sum in global memory.
enum class BackwardStore : uint8_t {
  kRegisters,  // by the threads that hold it
  kBulk,       // by the copy engine, from shared memory
  kOrdered,    // likewise, one key tile after the other (backward_turns.h): the same bits on every run
};

// An instance of the kernel, and how it shares work out.
struct BackwardShape {
  int rows = 64;  // queries of a tile
  bool prefetch_scores = true;
  BackwardStore store = BackwardStore::kRegisters;
  int parts =
      1;  // work items that share the query heads of a group, for more of them; a divisor of the group

  TileShape tile_shape() const { return {kBackwardKeys, rows}; }  // of the transposed mask
  friend bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

// `units`: multiprocessors, which there should be work for.
BackwardShape choose_backward_shape(const Problem& problem, int units);

}  // namespace longspan::sm90
