// The last items of the backward kernel, divided so that its blocks end together: where items are alike, as
// the columns of a full mask, all but a few blocks would wait for the last round. Host code without CUDA.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward_grid.h"
#include "kernels/sm90/backward_items.h"

namespace longspan::sm90 {

struct BackwardTail {
  int64_t workers = 1;   // blocks, or streams
  int32_t heads_kv = 1;  // in sections, of which the last one takes all that are left and uses the last list
  int32_t section_heads = 1;
  int32_t last_section = 0;
  int32_t rows = 64;  // of a tile
};

// Gives items of one mask, of which none waits for another, a last list of its own in which no item has many
// more tiles than are left for each block when it is taken. Items of several heads are divided by heads
// first, then by rows, for which the map gets more runs; key tiles whose items are divided are summed in
// fp32. Changes nothing, and returns false, where a simulated run does not end sooner by a per cent.
bool divide_tail(BackwardItems& items, BackwardGrid& grid, const BackwardTail& tail);

}  // namespace longspan::sm90
