// Partial tiles of the forward kernel's map: which columns bands show of a tile, as layers of spans. Each
// distinct tile is drawn once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/sm90/forward/planner/map.h"
#include "mask/lowering/lower.h"
#include "mask/mask.h"

namespace longspan::sm90 {

inline constexpr int kMostSteps = 16;  // of a tile
inline constexpr int64_t kMostCost = (int64_t{1} << 24) - 1;

// MapRow::cost
inline uint32_t cost_of(int64_t tiles, int64_t steps) {
  return static_cast<uint32_t>(std::min(steps + 2 * tiles, kMostCost));
}

// The part of a band that lies in a row tile. Rows are relative to the tile, columns are absolute.
struct ClippedBand {
  int32_t q_begin, q_end;
  int64_t k_begin, k_end;      // of the band
  int64_t lo, hi;              // bounds of column - row for these rows, or unbounded
  int64_t begin, end;          // columns that some row sees; there are no gaps
  int64_t all_begin, all_end;  // columns that all rows of the tile see

  int64_t begin_of(int64_t row) const {
    return lo == kUnboundedBelow ? k_begin : std::max(k_begin, row + lo);
  }
  int64_t end_of(int64_t row) const { return hi == kUnboundedAbove ? k_end : std::min(k_end, row + hi + 1); }
  bool rectangular() const { return lo == kUnboundedBelow && hi == kUnboundedAbove; }
};

inline ClippedBand clip(const Band& band, const Range& tile_rows) {
  const Range q = intersection(band.q, tile_rows);
  ClippedBand clipped;
  clipped.q_begin = static_cast<int32_t>(q.begin - tile_rows.begin);
  clipped.q_end = static_cast<int32_t>(q.end - tile_rows.begin);
  clipped.k_begin = band.k.begin;
  clipped.k_end = band.k.end;
  // From here on rows are relative to the tile.
  clipped.lo = band.lo == kUnboundedBelow ? band.lo : band.lo + tile_rows.begin;
  clipped.hi = band.hi == kUnboundedAbove ? band.hi : band.hi + tile_rows.begin;
  // Both ends of a row's span move to the right by at most one column a row, and no row is empty.
  clipped.begin = clipped.begin_of(clipped.q_begin);
  clipped.end = clipped.end_of(clipped.q_end - 1);
  clipped.all_begin = clipped.begin_of(clipped.q_end - 1);
  clipped.all_end = clipped.end_of(clipped.q_begin);
  if (q != tile_rows) clipped.all_end = clipped.all_begin;
  return clipped;
}

// A partial tile as the kernel reads it.
struct Layers {
  int32_t first = 0, count = 0;
  uint32_t cut = 0;
  bool full = false;  // all rows see all keys of a tile of full width
};

// The distinct partial tiles of a map.
class LayerTable {
 public:
  LayerTable(TileShape shape, std::vector<uint32_t>& spans) : shape_(shape), spans_(spans) {}

  // A single band relative to its tile, so that equal tiles compare equal: the rows and columns that it
  // touches (16 bits each) and the bounds that cut it (32 bits each).
  struct Lone {
    uint64_t sides = 0, bounds = 0;
    Lone() = default;
    Lone(int64_t q_begin, int64_t q_end, int64_t begin, int64_t end, int32_t lo, int32_t hi)
        : sides(static_cast<uint64_t>(q_begin) | static_cast<uint64_t>(q_end) << 16 |
                static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end) << 48),
          bounds(static_cast<uint64_t>(static_cast<uint32_t>(lo)) |
                 static_cast<uint64_t>(static_cast<uint32_t>(hi)) << 32) {}
    int32_t side(int i) const { return static_cast<int32_t>(sides >> (16 * i) & 0xffff); }
    int32_t lo() const { return static_cast<int32_t>(bounds & 0xffffffff); }
    int32_t hi() const { return static_cast<int32_t>(bounds >> 32); }
    friend bool operator==(const Lone&, const Lone&) = default;
  };
  static constexpr int32_t kNoLo = -(1 << 30), kNoHi = 1 << 30;

  // The layers that show `band` in the tile at `column` of a row tile of `rows` rows.
  Layers find(const ClippedBand& band, int64_t column, int32_t rows) {
    const Lone lone = relative(band, column);
    if (rows < shape_.rows) return draw(lone, rows);  // the last row tile of a mask: nothing to share
    return find(lone);
  }

  // The same for a row tile with all its rows.
  const Layers& find(const Lone& lone) {
    uint64_t hash = (lone.sides * 0x9e3779b97f4a7c15u) ^ lone.bounds;
    hash = (hash ^ hash >> 32) * 0xff51afd7ed558ccdu;
    Place* place = &places_[hash >> 55 << 1];  // two places for each hash; the older entry is evicted
    if (place->lone == lone && place->layers.count > 0) return place->layers;
    if (place[1].lone == lone && place[1].layers.count > 0) return place[1].layers;
    place[1] = place[0];
    *place = {lone, draw(lone, shape_.rows)};
    return place->layers;
  }

  Layers find(const std::vector<const ClippedBand*>& bands, int64_t column, int32_t rows) {
    if (bands.size() == 1) return find(*bands.front(), column, rows);
    if (std::all_of(bands.begin(), bands.end(), [](const ClippedBand* p) { return p->rectangular(); }))
      return draw_rectangles(bands, column, rows);
    return draw(bands, column, rows);
  }

 private:
  struct Place {
    Lone lone;
    Layers layers;
  };

  Lone relative(const ClippedBand& band, int64_t column) const {
    const int64_t begin = std::max<int64_t>(band.begin - column, 0),
                  end = std::min<int64_t>(band.end - column, shape_.columns);
    const bool lo_cuts = band.lo != kUnboundedBelow && band.begin_of(band.q_end - 1) - column > begin;
    const bool hi_cuts = band.hi != kUnboundedAbove && band.end_of(band.q_begin) - column < end;
    const auto lo = static_cast<int32_t>(lo_cuts ? band.lo - column : kNoLo),
               hi = static_cast<int32_t>(hi_cuts ? band.hi - column : kNoHi);
    return {band.q_begin, band.q_end, begin, end, lo, hi};
  }

  Layers draw(const Lone& lone, int32_t rows);
  Layers draw(const std::vector<const ClippedBand*>& bands, int64_t column, int32_t rows);
  Layers draw_rectangles(const std::vector<const ClippedBand*>& bands, int64_t column, int32_t rows);
  Layers described(size_t first, int32_t count, int32_t rows) const;
  Layers described(size_t first, int32_t count, int32_t last, uint32_t clean) const;
  bool alike(size_t span, size_t count) const;

  TileShape shape_;
  std::vector<uint32_t>& spans_;
  std::array<Place, 1024> places_;                      // tiles of a single band
  std::unordered_multimap<uint64_t, Layers> drawings_;  // tiles of several bands, by a hash of their spans
  std::unordered_multimap<uint64_t, std::pair<std::vector<uint32_t>, Layers>> sketches_;
  std::vector<uint32_t> drawn_, sketch_;
  std::vector<int32_t> edges_;
  std::vector<std::pair<uint32_t, uint32_t>> seen_;
};

}  // namespace longspan::sm90
