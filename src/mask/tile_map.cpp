// Lowering: a sweep over the row tiles that keeps the bands which reach the current one.
#include "mask/tile_map.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "mask/chunks.h"
#include "mask/partial_table.h"

namespace longspan {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The column tiles that one row tile visits: for each either how many full tiles begin there, or a list of
// the pieces that bands show of it. A bitmap of the touched tiles gives them in order without sorting.
class RowOfTiles {
 public:
  struct Piece {
    TilePiece shown;
    int64_t area = 0;
    int32_t next = -1;
  };

  explicit RowOfTiles(int64_t tiles) : slots_(tiles), touched_(ceil_div(tiles, 64)) {}

  void add_full(int64_t tile, int64_t count) {
    touch(tile);
    slots_[tile].full = static_cast<int32_t>(count);
  }

  void add_piece(int64_t tile, const TilePiece& shown, int64_t area) {
    touch(tile);
    pieces_.push_back({shown, area, slots_[tile].head});
    slots_[tile].head = static_cast<int32_t>(pieces_.size()) - 1;
  }

  // Calls full(tile, count) or partial(tile, pieces, area) from left to right, and forgets all.
  template <class Full, class PartialTile>
  void drain(Full full, PartialTile partial) {
    for (int64_t word = first_; word < last_; ++word) {
      for (; touched_[word] != 0; touched_[word] &= touched_[word] - 1) {
        const int64_t tile = word * 64 + std::countr_zero(touched_[word]);
        const Slot slot = std::exchange(slots_[tile], Slot{});
        if (slot.full > 0) {
          full(tile, slot.full);
          continue;
        }
        shown_.clear();
        int64_t area = 0;
        for (int32_t i = slot.head; i >= 0; i = pieces_[i].next) {
          shown_.push_back(pieces_[i].shown);
          area += pieces_[i].area;
        }
        partial(tile, std::span<const TilePiece>(shown_), area);
      }
    }
    pieces_.clear();
    first_ = std::numeric_limits<int64_t>::max();
    last_ = 0;
  }

 private:
  struct Slot {
    int32_t head = -1, full = 0;
  };

  void touch(int64_t tile) {
    const int64_t word = tile / 64;
    touched_[word] |= uint64_t{1} << (tile % 64);
    first_ = std::min(first_, word);
    last_ = std::max(last_, word + 1);
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> touched_;
  std::vector<Piece> pieces_;
  std::vector<TilePiece> shown_;
  int64_t first_ = std::numeric_limits<int64_t>::max(), last_ = 0;  // words of the bitmap in use
};

// Splits one band's share of a row tile into full tiles and pieces of tiles.
class Splitter {
 public:
  Splitter(const TileMap& map, RowOfTiles& row_of_tiles) : map_(map), row_(row_of_tiles) {}

  void split(const Band& band, const Range& tile_rows) {
    const Band slice = Band{intersection(band.q, tile_rows), band.k, band.lo, band.hi}.normalized();
    const int64_t width = map_.shape.columns;
    const int64_t first = slice.k.begin / width, last = ceil_div(slice.k.end, width);
    // Both ends of a band's rows move to the right only, so the last row's begin and the first row's end
    // bound what all rows see.
    Range full{last, last};
    if (slice.q == tile_rows) {
      const int64_t begin = slice.columns(slice.q.end - 1).begin, end = slice.columns(slice.q.begin).end;
      full = {ceil_div(begin, width), end / width};
      if (full.empty())
        full = {last, last};
      else
        row_.add_full(full.begin, full.size());
    }
    for (int64_t tile = first; tile < full.begin; ++tile) add_piece(slice, tile_rows.begin, tile);
    for (int64_t tile = full.end; tile < last; ++tile) add_piece(slice, tile_rows.begin, tile);
  }

 private:
  void add_piece(const Band& slice, int64_t first_row, int64_t tile) {
    const int64_t first_column = tile * map_.shape.columns;
    Band part = slice;
    part.k = intersection(part.k, {first_column, first_column + map_.shape.columns});
    const bool rectangle = slice.rectangular();
    if (!rectangle) part = part.normalized();
    TilePiece piece{
        static_cast<uint16_t>(part.q.begin - first_row), static_cast<uint16_t>(part.q.end - first_row),
        static_cast<uint16_t>(part.k.begin - first_column), static_cast<uint16_t>(part.k.end - first_column)};
    if (rectangle) {
      row_.add_piece(tile, piece, part.q.size() * part.k.size());
      return;
    }
    const int64_t shift = first_column - first_row;
    if (part.lo != kUnboundedBelow) piece.lo = static_cast<int32_t>(part.lo - shift);
    if (part.hi != kUnboundedAbove) piece.hi = static_cast<int32_t>(part.hi - shift);
    row_.add_piece(tile, piece, part.area());
  }

  const TileMap& map_;
  RowOfTiles& row_;
};

}  // namespace

size_t TileMap::bytes() const {
  auto bytes_of = [](const auto& items) { return items.size() * sizeof(items[0]); };
  return bytes_of(offsets) + bytes_of(runs) + bytes_of(partials) + bytes_of(spans) + bytes_of(tiles) +
         bytes_of(order);
}

TileMap lower(const Mask& mask, TileShape shape) {
  for (int32_t side : {shape.rows, shape.columns})
    LONGSPAN_CHECK(1 <= side && side <= 65535, "tile {} x {}: its sides must be 1 to 65535", shape.rows,
                   shape.columns);
  TileMap map;
  map.shape = shape;
  map.rows = mask.rows();
  map.columns = mask.columns();
  map.area = mask.area();
  const int64_t row_tiles = ceil_div(map.rows, shape.rows);
  map.tiles.assign(row_tiles, 0);
  map.offsets.assign(row_tiles + 1, 0);

  RowOfTiles row_of_tiles(map.column_tiles());
  Splitter splitter(map, row_of_tiles);
  PartialTable partials(shape);
  Chunks<Run> runs(size_t{1} << 17);
  std::vector<Band> active;
  auto next = mask.bands().begin();
  for (int64_t t = 0; t < row_tiles; ++t) {
    const Range tile_rows{t * shape.rows, std::min((t + 1) * shape.rows, map.rows)};
    std::erase_if(active, [&](const Band& band) { return band.q.end <= tile_rows.begin; });
    for (; next != mask.bands().end() && (*next).q.begin < tile_rows.end; ++next) active.push_back(*next);
    for (const Band& band : active) splitter.split(band, tile_rows);

    auto add_full = [&](int64_t tile, int32_t count) {
      map.tiles[t] += count;
      const bool continues = static_cast<int64_t>(runs.size()) > map.offsets[t] && runs.back().full() &&
                             runs.back().tile + runs.back().code == tile;
      if (continues)
        runs.back().code += count;
      else
        runs.push_back({static_cast<int32_t>(tile), count});
    };
    row_of_tiles.drain(add_full, [&](int64_t tile, std::span<const TilePiece> pieces, int64_t area) {
      const int64_t first_column = tile * shape.columns;
      const Range columns{first_column, std::min(first_column + shape.columns, map.columns)};
      if (area == tile_rows.size() * columns.size()) return add_full(tile, 1);
      map.tiles[t] += 1;
      runs.push_back({static_cast<int32_t>(tile), -partials.number_of(pieces, area)});
    });
    map.offsets[t + 1] = static_cast<int64_t>(runs.size());
  }
  map.runs = runs.take();
  map.partials = partials.take_partials();
  map.spans = partials.take_spans();
  map.order.resize(row_tiles);
  std::iota(map.order.begin(), map.order.end(), 0);
  std::stable_sort(map.order.begin(), map.order.end(),
                   [&](int32_t a, int32_t b) { return map.tiles[a] > map.tiles[b]; });
  return map;
}

}  // namespace longspan
