// The tile shape of the backward kernel, chosen by the problem alone.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "mask/tile_map.h"

namespace longspan::sm90 {

// How a tile's share of dq is added to its sum in global memory.
enum class BackwardStore : uint8_t {
  kRegisters,  // by the threads that hold it
  kBulk,       // by the copy engine, from shared memory
  kClaimed,    // likewise; the first to come to a tile stores what the others add to: nothing needs zeros
  kOrdered,    // likewise, one key tile after the other (backward_turns.h): the same bits on every run
};

// An instance of the kernel, and how it shares work out.
struct BackwardShape {
  int rows = 64;   // queries of a tile
  int keys = 128;  // of a tile: of two warpgroups together; or 64, and each has work items of its own
  bool prefetch_scores = false;
  BackwardStore store = BackwardStore::kClaimed;
  bool transposed_dq = true;  // its products give dq^T
  int parts = 1;              // work items that share a group's query heads out; a divisor of the group
  int section_units = 0;      // parts of groups that are worked on together; 0: as suits the GPU

  // Queries of each product of 64 of head_dim that make a tile's dq^T.
  int dq_columns(int64_t head_dim) const { return keys == 128 && head_dim == 64 ? rows / 2 : rows; }
  TileShape tile_shape() const { return {keys, rows}; }  // of the transposed mask
  friend bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

BackwardShape choose_backward_shape(const Problem& problem);

}  // namespace longspan::sm90
