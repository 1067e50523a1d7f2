// The part of a tile that one band shows.
#pragma once

#include <cstdint>
#include <limits>

namespace longspan {

// The columns that a row sees within one tile: [begin, end), relative to the tile's first column. Empty if
// begin == end.
struct Span {
  uint16_t begin = 0, end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

// A band in 32 bits, relative to the tile's first row and column, normalised.
struct TilePiece {
  uint16_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  int32_t lo = kNoLo, hi = kNoHi;

  static constexpr int32_t kNoLo = std::numeric_limits<int32_t>::min();
  static constexpr int32_t kNoHi = std::numeric_limits<int32_t>::max();

  bool rectangular() const { return lo == kNoLo && hi == kNoHi; }
  int64_t area() const {
    return rectangular() ? int64_t{q_end - q_begin} * (k_end - k_begin) : bounded_area();
  }
  Span columns(int32_t row) const;  // for a row in [q_begin, q_end)

 private:
  int64_t bounded_area() const;
};

}  // namespace longspan
