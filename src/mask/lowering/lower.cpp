// Lowering: a sweep over the row tiles that tracks the bands reaching the current tile.
#include "mask/lowering/lower.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "mask/chunks.h"
#include "mask/lowering/partial_table.h"

namespace longspan {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// There are fewer than 2^31 tokens, so 32-bit divisions suffice, which are faster.
int64_t floor_div(int64_t a, int64_t b) {
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

// Writes the runs of one row tile after another, each from left to right.
template <class NumberOf>
class RunWriter {
 public:
  RunWriter(TileMap& map, const NumberOf& number_of) : map_(map), number_of_(number_of) {
    runs_.reserve(4 * map.tiles.size());  // enough for many masks
  }

  void begin(int64_t row_tile, const Range& rows) {
    row_tile_ = row_tile, rows_ = rows.size(), tiles_ = 0;
    last_is_full_ = false;
  }
  void end() {
    map_.tiles[static_cast<size_t>(row_tile_)] = tiles_;
    map_.offsets[static_cast<size_t>(row_tile_) + 1] = static_cast<int64_t>(runs_.size());
  }
  std::vector<Run> take() { return runs_.take(); }

  void add_full(int64_t tile, int64_t count) {
    tiles_ += static_cast<int32_t>(count);
    if (last_is_full_ && runs_.back().tile + runs_.back().code == tile)
      runs_.back().code += static_cast<int32_t>(count);
    else
      runs_.push_back({static_cast<int32_t>(tile), static_cast<int32_t>(count)});
    last_is_full_ = true;
  }

  void add_piece(int64_t tile, const TilePiece& piece) {
    // Drop bounds that hide nothing: with a bound, a piece counts as partial.
    if (piece.rectangular() && piece.area() == area_of(tile)) return add_full(tile, 1);
    add_partial(tile, {&piece, 1});
  }

  void add_pieces(int64_t tile, std::span<const TilePiece> pieces) {
    if (pieces.size() == 1) return add_piece(tile, pieces.front());
    int64_t area = 0;
    for (const TilePiece& piece : pieces) area += piece.area();
    if (area == area_of(tile)) return add_full(tile, 1);
    add_partial(tile, pieces);
  }

 private:
  int64_t area_of(int64_t tile) const {
    const int64_t width = map_.shape.columns;
    return rows_ * std::min(width, map_.columns - tile * width);
  }

  void add_partial(int64_t tile, std::span<const TilePiece> pieces) {
    tiles_ += 1;
    runs_.push_back({static_cast<int32_t>(tile), -number_of_(pieces)});
    last_is_full_ = false;
  }

  TileMap& map_;
  const NumberOf& number_of_;
  Chunks<Run> runs_{size_t{1} << 17};
  int64_t row_tile_ = 0, rows_ = 0;
  int32_t tiles_ = 0;
  bool last_is_full_ = false;
};

// The column tiles of one row tile that several bands touch. Each entry holds the number of full tiles that
// start there, or a list of the pieces that bands show of it. A bitmap of the touched tiles yields them in
// order without sorting.
class RowOfTiles {
 public:
  explicit RowOfTiles(int64_t tiles) : slots_(tiles), touched_(ceil_div(tiles, 64)) {}

  void add_full(int64_t tile, int64_t count) {
    touch(tile);
    slots_[tile].full = static_cast<int32_t>(count);
  }

  void add_piece(int64_t tile, const TilePiece& piece) {
    touch(tile);
    pieces_.push_back({piece, slots_[tile].head});
    slots_[tile].head = static_cast<int32_t>(pieces_.size()) - 1;
  }

  // Passes all entries to the writer, from left to right, and clears itself.
  template <class Writer>
  void drain(Writer& writer) {
    for (int64_t word = first_; word < last_; ++word) {
      for (; touched_[word] != 0; touched_[word] &= touched_[word] - 1) {
        const int64_t tile = word * 64 + std::countr_zero(touched_[word]);
        const Slot slot = std::exchange(slots_[tile], Slot{});
        if (slot.full > 0) {
          writer.add_full(tile, slot.full);
          continue;
        }
        shown_.clear();
        for (int32_t i = slot.head; i >= 0; i = pieces_[i].next) shown_.push_back(pieces_[i].shown);
        writer.add_pieces(tile, shown_);
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
  struct ListedPiece {
    TilePiece shown;
    int32_t next = -1;
  };

  void touch(int64_t tile) {
    const int64_t word = tile / 64;
    touched_[word] |= uint64_t{1} << (tile % 64);
    first_ = std::min(first_, word);
    last_ = std::max(last_, word + 1);
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> touched_;
  std::vector<ListedPiece> pieces_;
  std::vector<TilePiece> shown_;
  int64_t first_ = std::numeric_limits<int64_t>::max(), last_ = 0;  // range of bitmap words in use
};

// Splits one band's share of a row tile into full tiles and pieces of tiles, from left to right.
class Splitter {
 public:
  explicit Splitter(const TileMap& map) : width_(map.shape.columns) {}

  template <class Sink>
  void split(const Band& band, const Range& tile_rows, Sink& sink) const {
    const Band slice = Band{intersection(band.q, tile_rows), band.k, band.lo, band.hi}.normalized();
    const int64_t first = floor_div(slice.k.begin, width_),
                  last = floor_div(slice.k.end + width_ - 1, width_);
    // Both interval ends only move right from row to row. So the begin of the last row and the end of the
    // first row bound the columns that all rows see.
    Range full{last, last};
    if (slice.q == tile_rows) {
      const int64_t begin = slice.columns(slice.q.end - 1).begin, end = slice.columns(slice.q.begin).end;
      full = {floor_div(begin + width_ - 1, width_), floor_div(end, width_)};
      if (full.empty()) full = {last, last};
    }
    for (int64_t tile = first; tile < full.begin; ++tile)
      sink.add_piece(tile, piece(slice, tile_rows.begin, tile));
    if (!full.empty()) sink.add_full(full.begin, full.size());
    for (int64_t tile = full.end; tile < last; ++tile)
      sink.add_piece(tile, piece(slice, tile_rows.begin, tile));
  }

 private:
  TilePiece piece(const Band& slice, int64_t first_row, int64_t tile) const {
    const int64_t first_column = tile * width_;
    Band part = slice;
    part.k = intersection(part.k, {first_column, first_column + width_});
    const bool rectangle = slice.rectangular();
    if (!rectangle) part = part.normalized();
    TilePiece piece{
        static_cast<uint16_t>(part.q.begin - first_row), static_cast<uint16_t>(part.q.end - first_row),
        static_cast<uint16_t>(part.k.begin - first_column), static_cast<uint16_t>(part.k.end - first_column)};
    const int64_t shift = first_column - first_row;
    if (part.lo != kUnboundedBelow) piece.lo = static_cast<int32_t>(part.lo - shift);
    if (part.hi != kUnboundedAbove) piece.hi = static_cast<int32_t>(part.hi - shift);
    return piece;
  }

  int64_t width_;
};

// Most tiles first, ties by index. A counting sort, since tile counts are bounded by the row length.
std::vector<int32_t> heaviest_first(const std::vector<int32_t>& tiles) {
  const int32_t most = tiles.empty() ? 0 : *std::max_element(tiles.begin(), tiles.end());
  std::vector<int32_t> place(static_cast<size_t>(most) + 2), order(tiles.size());
  for (const int32_t count : tiles) ++place[static_cast<size_t>(most - count) + 1];
  for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
  for (size_t t = 0; t < tiles.size(); ++t)
    order[static_cast<size_t>(place[static_cast<size_t>(most - tiles[t])]++)] = static_cast<int32_t>(t);
  return order;
}

void check_shape(TileShape shape) {
  for (int32_t side : {shape.rows, shape.columns})
    LONGSPAN_CHECK(1 <= side && side <= 65535, "tile {} x {}: its sides must be 1 to 65535", shape.rows,
                   shape.columns);
}

// Writes the runs of bands ordered by their first rows; number_of(pieces) is called for each partial tile.
template <class Bands, class NumberOf>
TileMap sweep(int64_t rows, int64_t columns, const Bands& bands, TileShape shape, const NumberOf& number_of) {
  TileMap map;
  map.shape = shape;
  map.rows = rows;
  map.columns = columns;
  const int64_t row_tiles = ceil_div(map.rows, shape.rows);
  map.tiles.assign(row_tiles, 0);
  map.offsets.assign(row_tiles + 1, 0);

  RunWriter writer(map, number_of);
  RowOfTiles row_of_tiles(map.column_tiles());
  const Splitter splitter(map);
  std::vector<Band> active;
  auto next = bands.begin();
  for (int64_t t = 0; t < row_tiles; ++t) {
    const Range tile_rows{t * shape.rows, std::min((t + 1) * shape.rows, map.rows)};
    std::erase_if(active, [&](const Band& band) { return band.q.end <= tile_rows.begin; });
    for (; next != bands.end() && (*next).q.begin < tile_rows.end; ++next) {
      active.push_back(*next);
      map.area += active.back().area();
    }
    writer.begin(t, tile_rows);
    if (active.size() == 1) {
      splitter.split(active.front(), tile_rows, writer);
    } else {
      for (const Band& band : active) splitter.split(band, tile_rows, row_of_tiles);
      row_of_tiles.drain(writer);
    }
    writer.end();
  }
  map.runs = writer.take();
  map.order = heaviest_first(map.tiles);
  return map;
}

// The spans are drawn into thread-local memory: page faults on fresh memory would cost more than the drawing.
PartialTable& table_for(TileShape shape) {
  thread_local PartialTable table;
  table.begin(shape);
  return table;
}

template <class Bands>
TileSketch sketch_bands(int64_t rows, int64_t columns, const Bands& bands, TileShape shape) {
  check_shape(shape);
  TileSketch sketch;
  sketch.map = sweep(rows, columns, bands, shape, [&](std::span<const TilePiece> pieces) {
    sketch.pieces.insert(sketch.pieces.end(), pieces.begin(), pieces.end());
    sketch.ends.push_back(sketch.pieces.size());
    LONGSPAN_CHECK(sketch.ends.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                   "a tile map of {} partial tiles", sketch.ends.size());
    return static_cast<int32_t>(sketch.ends.size()) - 1;
  });
  return sketch;
}

// Calls visit(row tile, first column tile, last column tile) for each row tile of each block of the
// transposed mask, from left to right within a row tile. Returns false at once if a block is not a multiple
// of the tile.
template <class Visit>
bool visit_transposed_blocks(const Mask& mask, TileShape shape, const Visit& visit) {
  const auto tiles_of = [](const Range& range, int64_t size, int64_t all) {
    const Range tiles{floor_div(range.begin, size), floor_div(range.end + size - 1, size)};
    const bool divided =
        tiles.begin * size == range.begin && (tiles.end * size == range.end || range.end == all);
    return divided ? tiles : Range{};
  };
  const BandList& bands = mask.bands();
  for (size_t group = 0; group < bands.groups().size(); ++group) {
    const Range rows{bands.groups()[group].q_begin, bands.groups()[group].q_end};
    const Range of_rows = tiles_of(rows, shape.columns, mask.rows());
    if (of_rows.empty()) return false;
    for (size_t i = bands.group_begin(group); i < bands.group_end(group); ++i) {
      const Range of_keys = tiles_of(bands.band(group, i).k, shape.rows, mask.columns());
      if (of_keys.empty()) return false;
      for (int64_t tile = of_keys.begin; tile < of_keys.end; ++tile)
        visit(static_cast<size_t>(tile), static_cast<int32_t>(of_rows.begin),
              static_cast<int32_t>(of_rows.end));
    }
  }
  return true;
}

// Blocks that are multiples of the tile lower to runs of full tiles. The bands are ordered by rows, so those
// of each column come in order: a counting pass, then a writing pass.
std::optional<TileMap> lower_transposed_blocks(const Mask& mask, TileShape shape) {
  if (!mask.bands().rectangular()) return std::nullopt;
  TileMap map;
  map.shape = shape;
  map.rows = mask.columns();
  map.columns = mask.rows();
  map.area = mask.area();
  const auto row_tiles = static_cast<size_t>(ceil_div(map.rows, shape.rows));
  map.tiles.assign(row_tiles, 0);
  map.offsets.assign(row_tiles + 1, 0);
  std::vector<int32_t> reach(row_tiles, -1);  // where the last run of each row tile ends
  if (!visit_transposed_blocks(mask, shape, [&](size_t tile, int32_t first, int32_t last) {
        map.offsets[tile + 1] += reach[tile] != first;
        map.tiles[tile] += last - first;
        reach[tile] = last;
      }))
    return std::nullopt;
  for (size_t tile = 0; tile < row_tiles; ++tile) map.offsets[tile + 1] += map.offsets[tile];
  map.runs.resize(static_cast<size_t>(map.offsets.back()));
  std::vector<int64_t> next(map.offsets.begin(), map.offsets.end() - 1);
  reach.assign(row_tiles, -1);
  visit_transposed_blocks(mask, shape, [&](size_t tile, int32_t first, int32_t last) {
    if (reach[tile] == first)
      map.runs[static_cast<size_t>(next[tile] - 1)].code += last - first;
    else
      map.runs[static_cast<size_t>(next[tile]++)] = {first, last - first};
    reach[tile] = last;
  });
  map.order = heaviest_first(map.tiles);
  return map;
}

}  // namespace

// A map has at least a run, its offset, an order and a count for each row of tiles.
static void check_size(int64_t rows, TileShape shape) {
  constexpr double kBytesPerRow = 40;
  check_host_memory(
      kBytesPerRow * static_cast<double>(rows) / shape.rows,
      fmt::format("the tiles of {} x {} of a mask of {} rows", shape.rows, shape.columns, rows));
}

TileMap lower(const Mask& mask, TileShape shape) {
  check_shape(shape);
  check_size(mask.rows(), shape);
  PartialTable& partials = table_for(shape);
  TileMap map = sweep(mask.rows(), mask.columns(), mask.bands(), shape,
                      [&](std::span<const TilePiece> pieces) { return partials.number_of(pieces); });
  partials.take(map);
  return map;
}

TileMap lower_transposed(const Mask& mask, TileShape shape) {
  check_shape(shape);
  if (std::optional<TileMap> map = lower_transposed_blocks(mask, shape)) return *std::move(map);
  return lower(mask.transposed(), shape);
}

TileSketch sketch(const Mask& mask, TileShape shape) {
  return sketch_bands(mask.rows(), mask.columns(), mask.bands(), shape);
}

TileSketch sketch(int64_t rows, int64_t columns, std::span<const Band> bands, TileShape shape) {
  return sketch_bands(rows, columns, bands, shape);
}

TileMap draw(TileSketch sketch) {
  TileMap& map = sketch.map;
  PartialTable& partials = table_for(map.shape);
  size_t first = 0;
  for (Run& run : map.runs) {
    if (run.full()) continue;
    const size_t end = sketch.ends[static_cast<size_t>(run.partial())];
    run.code = -partials.number_of(std::span(sketch.pieces).subspan(first, end - first));
    first = end;
  }
  partials.take(map);
  return std::move(map);
}

}  // namespace longspan
