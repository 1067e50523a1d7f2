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
  LONGSPAN_DEVICE void add_span(uint32_t span, int log2_width, int quad) {
    const int begin = static_cast<int>(span & 0xffff), end = static_cast<int>(span >> 16);
    if (begin < end) add(begin << log2_width, end << log2_width, quad);
  }
  LONGSPAN_DEVICE bool has(int i, int parity) const {
    return (bits[parity] >> i & 1) != 0;
  }
};

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
  // If the tile is not full: its first layer and their number, which is 1 for nearly every tile.
  LONGSPAN_DEVICE int layer() const { return -code_ / 2; }
  LONGSPAN_DEVICE int layers(const MapView& map) const { return -code_ % 2 == 0 ? 1 : map.runs[run_].layers; }
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

// What row `row` of a partial tile shows, in columns of which there are 2^log2_width to one of the map.
// `first` is its span in the first layer; nearly every tile has no other.
template <class Walk>
LONGSPAN_DEVICE VisibleColumns visible_columns(const MapView& map, const Walk& at, uint32_t first, int row,
                                               int log2_width, int quad) {
  VisibleColumns columns;
  columns.add_span(first, log2_width, quad);
#pragma unroll 1
  for (int layer = 1; layer < at.layers(map); ++layer)
    columns.add_span(map.span(at.layer() + layer, row), log2_width, quad);
  return columns;
}

}  // namespace longspan::portable
