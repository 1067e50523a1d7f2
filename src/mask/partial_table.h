// The distinct partial tiles of a tile map, found by what they show.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "mask/chunks.h"
#include "mask/pages.h"
#include "mask/tile_map.h"

namespace longspan {

// What one band shows of a tile: a band in 32 bits, relative to the tile's first row and column, normalised.
struct TilePiece {
  uint16_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  int32_t lo = kNoLo, hi = kNoHi;

  static constexpr int32_t kNoLo = std::numeric_limits<int32_t>::min();
  static constexpr int32_t kNoHi = std::numeric_limits<int32_t>::max();

  bool rectangular() const { return lo == kNoLo && hi == kNoHi; }
  Span columns(int32_t row) const;  // of a row in [q_begin, q_end)
};

class PartialTable {
 public:
  explicit PartialTable(TileShape shape);

  // The number of the partial tile whose visible pairs are those of the disjoint pieces, `area` in all.
  int32_t number_of(std::span<const TilePiece> pieces, int64_t area);

  std::vector<Partial> take_partials() { return std::move(partials_); }
  std::vector<Span> take_spans() { return spans_.take(); }

 private:
  // Lists of rectangles seen before, each in one of the few places that its hash gives; the last comer takes
  // the place of another. Block-sparse masks have millions of partial tiles of few kinds: to draw the rows of
  // each only to find it known would take seconds.
  static constexpr size_t kMemoPieces = 4, kMemoWays = 4, kMemoSize = size_t{1} << 18;
  struct Memo {
    std::array<uint64_t, kMemoPieces> key{};
    int32_t count = 0, number = 0;  // count 0: nothing yet
  };
  Memo* find_memo(std::span<const TilePiece> pieces);  // null for pieces that are not kept

  int32_t number_of_drawn(int64_t area);
  void draw(std::span<const TilePiece> pieces);
  void draw_row(int32_t row);
  bool drawn_equals(const Partial& partial);

  TileShape shape_;
  Pages memo_;  // [kMemoSize]; only what is used takes memory
  std::vector<Partial> partials_;
  Chunks<Span> spans_;
  std::unordered_multimap<uint64_t, int32_t> numbers_;  // by the hash of what is drawn
  std::vector<Span> drawn_;                             // [layers, shape.rows]
  std::vector<uint16_t> cuts_;                          // rows between which the same pieces are live
  std::vector<TilePiece> live_;                         // those, from left to right
};

}  // namespace longspan
