// The part of a band that lies in a row tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mask/band.h"
#include "mask/lowering/tile_piece.h"

namespace longspan {

// Rows are relative to the tile, columns are absolute. The band is normalised, so each of its rows sees a
// column, and both ends of what a row sees move to the right by at most one column a row.
struct ClippedBand {
  int32_t q_begin = 0, q_end = 0;
  int64_t k_begin = 0, k_end = 0;      // of the band
  int64_t lo = 0, hi = 0;              // bounds of column - row for these rows, or unbounded
  int64_t begin = 0, end = 0;          // columns that some row sees; there are no gaps
  int64_t all_begin = 0, all_end = 0;  // columns that all rows of the tile see

  ClippedBand(const Band& band, const Range& tile_rows)
      : k_begin(band.k.begin),
        k_end(band.k.end),
        lo(band.lo == kUnboundedBelow ? band.lo : band.lo + tile_rows.begin),
        hi(band.hi == kUnboundedAbove ? band.hi : band.hi + tile_rows.begin) {
    const Range q = intersection(band.q, tile_rows);
    q_begin = static_cast<int32_t>(q.begin - tile_rows.begin);
    q_end = static_cast<int32_t>(q.end - tile_rows.begin);
    begin = all_begin = k_begin;
    end = all_end = k_end;
    if (!rectangular()) {
      begin = begin_of(q_begin), all_begin = begin_of(q_end - 1);
      end = end_of(q_end - 1), all_end = end_of(q_begin);
    }
    if (q != tile_rows) all_end = all_begin;
  }

  int64_t begin_of(int64_t row) const {
    return lo == kUnboundedBelow ? k_begin : std::max(k_begin, row + lo);
  }
  int64_t end_of(int64_t row) const { return hi == kUnboundedAbove ? k_end : std::min(k_end, row + hi + 1); }
  bool rectangular() const { return lo == kUnboundedBelow && hi == kUnboundedAbove; }

  // What the band shows of the tile of `width` columns from `column` on, which is something.
  TilePiece piece(int64_t column, int64_t width) const {
    const int64_t last = column + width;
    int64_t first_row = q_begin, end_row = q_end, from = std::max(k_begin, column),
            to = std::min(k_end, last);
    TilePiece piece;
    if (!rectangular()) {
      if (hi != kUnboundedAbove) first_row = std::max(first_row, column - hi);
      if (lo != kUnboundedBelow) end_row = std::min(end_row, last - lo);
      from = std::max(begin_of(first_row), column), to = std::min(end_of(end_row - 1), last);
      // Bounds that hide nothing are left out.
      if (begin_of(end_row - 1) > from) piece.lo = static_cast<int32_t>(lo - column);
      if (end_of(first_row) < to) piece.hi = static_cast<int32_t>(hi - column);
    }
    piece.q_begin = static_cast<uint16_t>(first_row);
    piece.q_end = static_cast<uint16_t>(end_row);
    piece.k_begin = static_cast<uint16_t>(from - column);
    piece.k_end = static_cast<uint16_t>(to - column);
    return piece;
  }
};

}  // namespace longspan
