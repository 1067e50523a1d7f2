// The distinct partial tiles of a tile map, found by what they show.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "mask/chunks.h"
#include "mask/tile_map.h"

namespace longspan {

// What one band shows of a tile: a band in 32 bits, relative to the tile's first row and column, normalised.
struct TilePiece {
  uint16_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  int32_t lo = kNoLo, hi = kNoHi;

  static constexpr int32_t kNoLo = std::numeric_limits<int32_t>::min();
  static constexpr int32_t kNoHi = std::numeric_limits<int32_t>::max();
  friend bool operator==(const TilePiece&, const TilePiece&) = default;

  Span columns(int32_t row) const;  // of a row in [q_begin, q_end)
};

class PartialTable {
 public:
  // `bands` of the mask are a hint at how many different tiles to expect.
  PartialTable(TileShape shape, size_t bands);

  // The number of the partial tile whose visible pairs are those of the disjoint pieces, `area` in all.
  int32_t number_of(std::span<const TilePiece> pieces, int64_t area);

  std::vector<Partial> take_partials() { return std::move(partials_); }
  std::vector<Span> take_spans() { return spans_.take(); }

 private:
  // Recently seen lists of pieces, each in the one place that its hash gives. Block-sparse masks have
  // millions of partial tiles of few kinds; to draw the rows of each only to find it known would take
  // seconds.
  static constexpr size_t kMemoPieces = 4;
  struct Memo {
    TilePiece pieces[kMemoPieces];
    int32_t count = 0, number = 0;
  };

  int32_t number_of_drawn(int64_t area);
  void draw(std::span<const TilePiece> pieces);
  bool drawn_equals(const Partial& partial);

  TileShape shape_;
  std::vector<Memo> memo_;
  std::vector<Partial> partials_;
  Chunks<Span> spans_;
  std::unordered_multimap<uint64_t, int32_t> numbers_;  // by the hash of what is drawn
  std::vector<Span> drawn_;                             // [layers, shape.rows]
};

}  // namespace longspan
