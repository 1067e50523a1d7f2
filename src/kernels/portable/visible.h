// Which elements of a partial tile a thread's accumulators show.
#pragma once

#include <cstdint>

#include "kernels/portable/isa/device.h"
#include "kernels/portable/params.h"

namespace longspan::portable {

// The columns of one accumulator row that are visible. A thread holds columns 8 i + 2 (lane % 4) and the next
// one; bit i stands for them.
struct VisibleColumns {
  uint32_t bits[2] = {0, 0};

  // Adds columns [begin, end) of at most 128; `quad` is lane % 4.
  LONGSPAN_DEVICE void add(int begin, int end, int quad) {
#pragma unroll
    for (int parity = 0; parity < 2; ++parity) {
      // Column 8 i + c is at or past x where i >= (x - c) / 8, rounded up.
      const int up = 7 - (2 * quad + parity);
      bits[parity] |= ((1U << ((end + up) >> 3)) - 1) & ~((1U << ((begin + up) >> 3)) - 1);
    }
  }
  LONGSPAN_DEVICE bool has(int i, int parity) const {
    return (bits[parity] >> i & 1) != 0;
  }
};

// Row `row` of partial number `partial`, whose columns are 2^log2_width to one of the map.
LONGSPAN_DEVICE VisibleColumns visible_columns(const MapView& map, int partial, int row, int log2_width,
                                               int quad) {
  VisibleColumns visible;
  const MapPartial layers = map.partials[partial];
#pragma unroll 1
  for (int layer = layers.first; layer < layers.first + layers.layers; ++layer) {
    const uint32_t span = map.spans[int64_t{layer} * map.rows_per_tile + row];
    const int begin = static_cast<int>(span & 0xffff), end = static_cast<int>(span >> 16);
    if (begin < end) visible.add(begin << log2_width, end << log2_width, quad);
  }
  return visible;
}

// Walks the tiles of a row tile's runs, from the last to the first if kStep is -1. It holds few registers.
template <int kStep>
class Walk {
 public:
  LONGSPAN_DEVICE Walk(const MapView& map, const MapRow& row)
      : run_(row.first_run), end_(row.first_run + static_cast<uint32_t>(row.runs)) {
    if (kStep < 0) run_ = end_ - 1, end_ = row.first_run - 1;
    read(map);
  }
  LONGSPAN_DEVICE bool done() const { return run_ == end_; }
  LONGSPAN_DEVICE int tile() const { return tile_; }
  LONGSPAN_DEVICE bool full() const { return code_ > 0; }
  LONGSPAN_DEVICE int partial() const { return -code_; }  // its number, if the tile is not full
  LONGSPAN_DEVICE int turn(const MapView& map) const { return map.runs[run_].turn; }
  LONGSPAN_DEVICE void next(const MapView& map) {
    if (code_ > 1) {
      tile_ += kStep;
      --code_;
      return;
    }
    run_ += static_cast<uint32_t>(kStep);
    read(map);
  }

 private:
  LONGSPAN_DEVICE void read(const MapView& map) {
    if (done()) return;
    const MapRun run = map.runs[run_];
    tile_ = run.tile + (kStep < 0 && run.code > 0 ? run.code - 1 : 0);
    code_ = run.code;
  }

  uint32_t run_, end_;
  int tile_ = 0, code_ = 0;  // as in MapRun; full tiles that are left
};

}  // namespace longspan::portable
