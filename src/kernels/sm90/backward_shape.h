// The tile shape of the backward kernel, chosen by the problem alone.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "mask/tile_map.h"

namespace longspan::sm90 {

// How a tile's share of dq is added to its sum in global memory.
enum class BackwardStore : uint8_t {
  kRegisters,  // by the threads that hold it
  kClaimed,  // by the copy engine, from shared memory; the first to come to a tile stores what the others add
             // to: nothing needs zeros
  kOrdered,  // likewise, one key tile after the other (backward_turns.h): the same bits on every run
};

// An instance of the kernel, and how it shares work out.
struct BackwardShape {
  int rows = 64;   // queries of a tile
  int keys = 128;  // of a tile: of two warpgroups together; or 64, and each has work items of its own
  BackwardStore store = BackwardStore::kClaimed;
  bool in_rows = true;    // dq's sums lie in rows, not as threads hold them: tiles of rows may begin anywhere
  int parts = 1;          // work items that share a group's query heads out; a divisor of the group
  int section_units = 0;  // parts of groups that are worked on together; 0: as suits the GPU
  bool aligned = true;    // tiles may begin where the mask's bands do
  int most_tiles = 0;  // of an item, which is divided otherwise; and items go by the places of their keys, so
                       // that neighbours run together. 0: any number, the heaviest first

  TileShape tile_shape() const { return {keys, rows}; }  // of the transposed mask
  friend bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

BackwardShape choose_backward_shape(const Problem& problem);

}  // namespace longspan::sm90
