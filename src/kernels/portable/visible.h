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
    LONGSPAN_UNROLL
    for (int parity = 0; parity < 2; ++parity) {
      // Column 8 i + c is at or past x where i >= (x - c) / 8, rounded up.
      const int up = 7 - (2 * quad + parity);
      bits[parity] |= ((1U << ((end + up) >> 3)) - 1) & ~((1U << ((begin + up) >> 3)) - 1);
    }
  }
  LONGSPAN_DEVICE bool has(int i, int parity) const { return (bits[parity] >> i & 1) != 0; }
};

// Row `row` of partial number `partial`, whose columns are 2^log2_width to one of the map.
LONGSPAN_DEVICE VisibleColumns visible_columns(const MapView& map, int partial, int row, int log2_width,
                                               int quad) {
  VisibleColumns visible;
  const MapPartial layers = map.partials[partial];
  for (int layer = layers.first; layer < layers.first + layers.layers; ++layer) {
    const uint32_t span = map.spans[int64_t{layer} * map.rows_per_tile + row];
    const int begin = static_cast<int>(span & 0xffff), end = static_cast<int>(span >> 16);
    if (begin < end) visible.add(begin << log2_width, end << log2_width, quad);
  }
  return visible;
}

// Walks the tiles of a row tile's runs.
class Walk {
 public:
  LONGSPAN_DEVICE Walk(const MapView& map, const MapRow& row)
      : run_(map.runs + row.first_run), end_(run_ + row.runs) {
    if (!done()) now_ = *run_;
  }
  LONGSPAN_DEVICE bool done() const { return run_ == end_; }
  LONGSPAN_DEVICE int tile() const { return now_.tile + step_; }
  LONGSPAN_DEVICE bool partial() const { return now_.code <= 0; }
  LONGSPAN_DEVICE int number() const { return -now_.code; }  // of the partial tile
  LONGSPAN_DEVICE int turn() const { return now_.turn; }
  LONGSPAN_DEVICE void next() {
    if (++step_ < now_.code) return;
    step_ = 0;
    if (++run_ != end_) now_ = *run_;
  }

 private:
  const MapRun *run_, *end_;
  MapRun now_;
  int step_ = 0;
};

}  // namespace longspan::portable
