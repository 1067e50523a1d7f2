// Lowering for the forward kernel: a sweep over the row tiles; each covers its visible keys from left to
// right.
#include "kernels/sm90/forward_map.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"

namespace longspan::sm90 {
namespace {

constexpr int kMostSteps = 16;
constexpr int32_t kCosts = 2048;  // as many as order() tells apart

// What one band shows of a row tile. Rows count from the tile's first, columns are absolute.
struct Piece {
  int32_t q_begin, q_end;
  int64_t k_begin, k_end;      // of the band
  int64_t lo, hi;              // of column - row, with rows so counted, or unbounded
  int64_t begin, end;          // columns that some row sees: all between them are seen by some row
  int64_t all_begin, all_end;  // columns that all rows of the tile see

  int64_t begin_of(int64_t row) const {
    return lo == kUnboundedBelow ? k_begin : std::max(k_begin, row + lo);
  }
  int64_t end_of(int64_t row) const { return hi == kUnboundedAbove ? k_end : std::min(k_end, row + hi + 1); }
  bool rectangular() const { return lo == kUnboundedBelow && hi == kUnboundedAbove; }
};

// The layers of a partial tile, and what the kernel is told about them.
struct Layers {
  int32_t first = 0, count = 0;
  uint32_t cut = 0;
  bool full = false;  // all rows see all keys of a whole tile
};

// The distinct partial tiles.
class LayerTable {
 public:
  LayerTable(TileShape shape, std::vector<uint32_t>& spans) : shape_(shape), spans_(spans) {}

  // What `piece` shows of the tile that begins at `column`; the row tile has `rows` rows.
  Layers find(const Piece& piece, int64_t column, int32_t rows) {
    const Lone lone = relative(piece, column);
    if (rows < shape_.rows) return draw(lone, rows);  // the last row tile: alone of its kind
    uint64_t hash = (lone.sides * 0x9e3779b97f4a7c15u) ^ lone.bounds;
    hash = (hash ^ hash >> 32) * 0xff51afd7ed558ccdu;
    Place* place = &places_[hash >> 55 << 1];  // two places for each hash; the older one makes room
    if (place->lone == lone && place->layers.count > 0) return place->layers;
    if (place[1].lone == lone && place[1].layers.count > 0) return place[1].layers;
    place[1] = place[0];
    *place = {lone, draw(lone, rows)};
    return place->layers;
  }

  Layers find(const std::vector<const Piece*>& pieces, int64_t column, int32_t rows) {
    if (pieces.size() == 1) return find(*pieces.front(), column, rows);
    return draw(pieces, column, rows);
  }

 private:
  // A lone piece relative to its tile, such that equal tiles are equal: rows and columns that it touches, 16
  // bits each, and its bounds, 32 bits each, where they cut.
  struct Lone {
    uint64_t sides = 0, bounds = 0;
    int32_t side(int i) const { return static_cast<int32_t>(sides >> (16 * i) & 0xffff); }
    int32_t lo() const { return static_cast<int32_t>(bounds & 0xffffffff); }
    int32_t hi() const { return static_cast<int32_t>(bounds >> 32); }
    friend bool operator==(const Lone&, const Lone&) = default;
  };
  static constexpr int32_t kNoLo = -(1 << 30), kNoHi = 1 << 30;
  struct Place {
    Lone lone;
    Layers layers;
  };

  Lone relative(const Piece& piece, int64_t column) const {
    const int64_t begin = std::max<int64_t>(piece.begin - column, 0),
                  end = std::min<int64_t>(piece.end - column, shape_.columns);
    const bool lo_cuts = piece.lo != kUnboundedBelow && piece.begin_of(piece.q_end - 1) - column > begin;
    const bool hi_cuts = piece.hi != kUnboundedAbove && piece.end_of(piece.q_begin) - column < end;
    const auto lo = static_cast<int32_t>(lo_cuts ? piece.lo - column : kNoLo),
               hi = static_cast<int32_t>(hi_cuts ? piece.hi - column : kNoHi);
    return {static_cast<uint64_t>(piece.q_begin) | static_cast<uint64_t>(piece.q_end) << 16 |
                static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end) << 48,
            static_cast<uint64_t>(static_cast<uint32_t>(lo)) |
                static_cast<uint64_t>(static_cast<uint32_t>(hi)) << 32};
  }

  Layers draw(const Lone& lone, int32_t rows) {
    const size_t first = spans_.size();
    spans_.resize(first + static_cast<size_t>(shape_.rows), 0);
    const int32_t k_begin = lone.side(2), k_end = lone.side(3), lo = lone.lo(), hi = lone.hi();
    for (int32_t row = lone.side(0); row < lone.side(1); ++row) {
      const int32_t begin = std::max(k_begin, row + lo), end = std::min(k_end, row + hi + 1);
      if (begin < end)
        spans_[first + static_cast<size_t>(row)] = static_cast<uint32_t>(begin) | static_cast<uint32_t>(end)
                                                                                      << 16;
    }
    return described(first, 1, rows);
  }

  // Each row's intervals from left to right, those that touch joined, one to a layer.
  Layers draw(const std::vector<const Piece*>& pieces, int64_t column, int32_t rows) {
    const auto height = static_cast<size_t>(shape_.rows);
    const bool rectangles =
        std::all_of(pieces.begin(), pieces.end(), [](const Piece* p) { return p->rectangular(); });
    drawn_.assign(height, 0);
    for (int32_t row = 0; row < rows; ++row) {
      const bool alike = row > 0 && rectangles &&
                         std::none_of(pieces.begin(), pieces.end(),
                                      [row](const Piece* p) { return p->q_begin == row || p->q_end == row; });
      if (alike) {
        for (size_t at = static_cast<size_t>(row); at < drawn_.size(); at += height)
          drawn_[at] = drawn_[at - 1];
        continue;
      }
      seen_.clear();
      for (const Piece* piece : pieces) {
        if (row < piece->q_begin || row >= piece->q_end) continue;
        const int64_t begin = std::max<int64_t>(piece->begin_of(row) - column, 0),
                      end = std::min<int64_t>(piece->end_of(row) - column, shape_.columns);
        if (begin < end) seen_.emplace_back(static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
      }
      std::sort(seen_.begin(), seen_.end());
      size_t layer = 0;
      for (size_t i = 0; i < seen_.size(); layer += height) {
        auto [begin, end] = seen_[i];
        for (++i; i < seen_.size() && seen_[i].first == end; ++i) end = seen_[i].second;
        if (drawn_.size() == layer) drawn_.resize(layer + height, 0);
        drawn_[layer + static_cast<size_t>(row)] = begin | end << 16;
      }
    }
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const uint32_t span : drawn_) hash = (std::rotl(hash, 23) ^ span) * 0xff51afd7ed558ccdu;
    for (auto [at, end] = drawings_.equal_range(hash); at != end; ++at) {
      const Layers& layers = at->second;
      if (static_cast<size_t>(layers.count) * height == drawn_.size() &&
          std::equal(drawn_.begin(), drawn_.end(), spans_.begin() + layers.first * int64_t{shape_.rows}))
        return layers;
    }
    const size_t first = spans_.size();
    spans_.insert(spans_.end(), drawn_.begin(), drawn_.end());
    return drawings_.emplace(hash, described(first, static_cast<int32_t>(drawn_.size() / height), rows))
        ->second;
  }

  // Rows past the mask's last see nothing and ask for nothing, so they are left out.
  Layers described(size_t first, int32_t count, int32_t rows) const {
    const auto height = static_cast<size_t>(shape_.rows);
    uint32_t last = 0, clean = ~0u;  // clean: steps that every row sees whole
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      uint32_t whole = 0;
      for (size_t layer = 0; layer < static_cast<size_t>(count); ++layer) {
        const uint32_t span = spans_[first + layer * height + row];
        const uint32_t begin = span & 0xffff, end = span >> 16;
        last = std::max(last, end);
        const uint32_t from = (begin + kStepKeys - 1) / kStepKeys, to = end / kStepKeys;
        if (from < to) whole |= ((1u << to) - 1) & ~((1u << from) - 1);
      }
      clean &= whole;
    }
    const auto steps = static_cast<int>((last + kStepKeys - 1) / kStepKeys);
    const uint32_t cut = ~clean & 0xffff;
    const int all = shape_.columns / kStepKeys;
    return {static_cast<int32_t>(first / height), count, TileCut(steps, cut, count).bits,
            steps == all && (cut & ((1u << all) - 1)) == 0};
  }

  TileShape shape_;
  std::vector<uint32_t>& spans_;
  std::array<Place, 1024> places_;                      // of lone pieces
  std::unordered_multimap<uint64_t, Layers> drawings_;  // of several pieces, by the hash of what is drawn
  std::vector<uint32_t> drawn_;
  std::vector<std::pair<uint32_t, uint32_t>> seen_;
};

void check_size(size_t entries, size_t spans) {
  LONGSPAN_CHECK(entries <= std::numeric_limits<uint32_t>::max() &&
                     spans <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "{} entries and {} spans are more than a plan can number", entries, spans);
}

// Lowers one mask.
class Cover {
 public:
  Cover(const Mask& mask, TileShape shape) : mask_(mask), shape_(shape), layers_(shape, out_.spans) {}

  ForwardMap run() {
    const int64_t rows = mask_.rows();
    const auto row_tiles = static_cast<int32_t>((rows + shape_.rows - 1) / shape_.rows);
    out_.row_tiles = row_tiles;
    out_.rows_per_tile = shape_.rows;
    rows_.resize(static_cast<size_t>(row_tiles));
    out_.entries.reserve(size_t{4} * rows_.size());
    auto next = mask_.bands().begin();
    const auto end = mask_.bands().end();
    int64_t next_row = next == end ? rows : (*next).q.begin;
    for (int32_t t = 0; t < row_tiles; ++t) {
      const int64_t first = int64_t{t} * shape_.rows, last = std::min<int64_t>(first + shape_.rows, rows);
      const bool changes = next_row < last || first_end_ < last;
      if (!changes && all_rectangles_ && t > 0) {  // sees what the row tile before it sees
        rows_[static_cast<size_t>(t)] = rows_[static_cast<size_t>(t) - 1];
        rows_[static_cast<size_t>(t)].row_tile = t;
        out_.tiles += row_tiles_, out_.steps += row_steps_;
        continue;
      }
      if (first_end_ <= first || next_row < last) {
        std::erase_if(active_, [&](const Band& band) { return band.q.end <= first; });
        while (next_row < last) {
          active_.push_back(*next);
          ++next;
          next_row = next == end ? rows : (*next).q.begin;
        }
        first_end_ = std::numeric_limits<int64_t>::max();
        for (const Band& band : active_) first_end_ = std::min(first_end_, band.q.end);
      }
      cover(t, {first, last});
      // What is seen stays the same only if it is the same for all rows of this tile.
      all_rectangles_ =
          std::all_of(pieces_.begin(), pieces_.end(),
                      [&](const Piece& piece) {
                        return piece.rectangular() && piece.q_begin == 0 && piece.q_end == last - first;
                      }) &&
          last - first == shape_.rows;
    }
    check_size(out_.entries.size(), out_.spans.size());
    order();
    return std::move(out_);
  }

 private:
  void add(const Band& band, const Range& tile_rows) {
    const Range q = intersection(band.q, tile_rows);
    Piece piece;
    piece.q_begin = static_cast<int32_t>(q.begin - tile_rows.begin);
    piece.q_end = static_cast<int32_t>(q.end - tile_rows.begin);
    piece.k_begin = band.k.begin;
    piece.k_end = band.k.end;
    // From here on rows count from the tile's first.
    piece.lo = band.lo == kUnboundedBelow ? band.lo : band.lo + tile_rows.begin;
    piece.hi = band.hi == kUnboundedAbove ? band.hi : band.hi + tile_rows.begin;
    // Both ends of a band's rows move to the right, by one column a row at most, and no row is empty.
    piece.begin = piece.begin_of(piece.q_begin);
    piece.end = piece.end_of(piece.q_end - 1);
    piece.all_begin = piece.begin_of(piece.q_end - 1);
    piece.all_end = piece.end_of(piece.q_begin);
    if (q != tile_rows) piece.all_end = piece.all_begin;
    pieces_.push_back(piece);
  }

  void cover(int32_t t, const Range& tile_rows) {
    const auto rows = static_cast<int32_t>(tile_rows.size());
    pieces_.clear();
    for (const Band& band : active_) add(band, tile_rows);
    const auto by_begin = [](const Piece& a, const Piece& b) { return a.begin < b.begin; };
    if (!std::is_sorted(pieces_.begin(), pieces_.end(), by_begin))
      std::sort(pieces_.begin(), pieces_.end(), by_begin);

    row_first_ = out_.entries.size();
    row_tiles_ = row_steps_ = 0;
    if (pieces_.size() == 1)
      cover(pieces_.front(), rows);
    else
      cover(rows);
    rows_[static_cast<size_t>(t)] = {t, static_cast<uint32_t>(row_first_),
                                     static_cast<int32_t>(out_.entries.size() - row_first_),
                                     static_cast<int32_t>(row_steps_ + 2 * row_tiles_)};
    out_.tiles += row_tiles_;
    out_.steps += row_steps_;
  }

  // A row tile that shows one piece: the usual one.
  void cover(const Piece& piece, int32_t rows) {
    for (int64_t column = piece.begin; column < piece.end;) {
      const int64_t count =
          piece.all_begin <= column ? std::max<int64_t>(piece.all_end - column, 0) / shape_.columns : 0;
      if (count > 0) {
        push_full(column, count);
        column += count * shape_.columns;
      } else {
        push_partial(column, layers_.find(piece, column, rows));
        column += shape_.columns;
      }
    }
  }

  void cover(int32_t rows) {
    int64_t covered = 0;
    for (size_t i = 0; i < pieces_.size();) {
      const Piece& piece = pieces_[i];
      if (piece.end <= covered) {
        ++i;
        continue;
      }
      const int64_t column = std::max(covered, piece.begin);
      if (piece.all_begin <= column && piece.all_end - column >= shape_.columns) {
        const int64_t count = (piece.all_end - column) / shape_.columns;
        push_full(column, count);
        covered = column + count * shape_.columns;
        continue;
      }
      const int64_t end = column + shape_.columns;
      hits_.clear();
      for (size_t j = i; j < pieces_.size() && pieces_[j].begin < end; ++j)
        if (pieces_[j].end > column) hits_.push_back(&pieces_[j]);
      const Layers layers = layers_.find(hits_, column, rows);
      if (layers.full)
        push_full(column, 1);
      else
        push_partial(column, layers);
      covered = end;
    }
  }

  void push_full(int64_t column, int64_t count) {
    row_tiles_ += count;
    row_steps_ += count * (shape_.columns / kStepKeys);
    std::vector<MapEntry>& entries = out_.entries;
    if (entries.size() > row_first_ && last_is_full_ &&
        entries.back().column + int64_t{entries.back().code} * shape_.columns == column) {
      entries.back().code += static_cast<int32_t>(count);
      return;
    }
    entries.push_back({static_cast<int32_t>(column), static_cast<int32_t>(count)});
    last_is_full_ = true;
  }

  void push_partial(int64_t column, const Layers& layers) {
    row_tiles_ += 1;
    row_steps_ += TileCut(layers.cut).steps();
    std::vector<MapEntry>& entries = out_.entries;
    if ((entries.size() - row_first_) % kEntryBatch == kEntryBatch - 1) entries.push_back({});
    entries.push_back({static_cast<int32_t>(column), -1});
    entries.push_back({static_cast<int32_t>(layers.cut), layers.first});
    last_is_full_ = false;
  }

  // The heaviest first, ties by index: by counting, as costs are small numbers or can be made so.
  void order() {
    int32_t most = 0;
    for (const MapRow& row : rows_) most = std::max(most, row.cost);
    int shift = 0;
    while (most >> shift >= kCosts) ++shift;
    std::array<int32_t, kCosts + 1> place{};
    const auto bucket = [&](const MapRow& row) {
      return static_cast<size_t>((most >> shift) - (row.cost >> shift));
    };
    for (const MapRow& row : rows_) ++place[bucket(row) + 1];
    for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
    out_.work.resize(rows_.size());
    for (const MapRow& row : rows_) out_.work[static_cast<size_t>(place[bucket(row)]++)] = row;
  }

  const Mask& mask_;
  TileShape shape_;
  ForwardMap out_;
  LayerTable layers_;
  std::vector<Band> active_;
  int64_t first_end_ = 0;  // smallest row end of active_
  bool all_rectangles_ = false;
  std::vector<Piece> pieces_;  // of the current row tile, by `begin`
  std::vector<const Piece*> hits_;
  std::vector<MapRow> rows_;  // [row_tiles]
  size_t row_first_ = 0;
  int64_t row_tiles_ = 0, row_steps_ = 0;
  bool last_is_full_ = false;
};

void append(ForwardMap& out, const ForwardMap& map) {
  const auto first_layer = static_cast<int32_t>(out.spans.size() / static_cast<size_t>(map.rows_per_tile));
  const auto first_entry = static_cast<uint32_t>(out.entries.size());
  out.spans.insert(out.spans.end(), map.spans.begin(), map.spans.end());
  for (size_t i = 0; i < map.entries.size(); ++i) {
    out.entries.push_back(map.entries[i]);
    if (map.entries[i].code >= 0) continue;
    ++i;
    out.entries.push_back({map.entries[i].column, map.entries[i].code + first_layer});
  }
  for (MapRow row : map.work) {
    row.first_entry += first_entry;
    out.work.push_back(row);
  }
  out.tiles += map.tiles;
  out.steps += map.steps;
}

}  // namespace

size_t ForwardMap::bytes() const {
  return work.size() * sizeof(MapRow) + entries.size() * sizeof(MapEntry) + spans.size() * sizeof(uint32_t);
}

ForwardMap lower_forward(const HeadMasks& masks, TileShape shape) {
  LONGSPAN_CHECK(!masks.empty(), "a problem has at least one mask");
  LONGSPAN_CHECK(
      shape.columns % kStepKeys == 0 && 0 < shape.columns && shape.columns <= kMostSteps * kStepKeys,
      "tiles of {} keys: must be a multiple of {}, at most {}", shape.columns, kStepKeys,
      kMostSteps * kStepKeys);
  if (masks.size() == 1) return Cover(masks.front(), shape).run();
  std::vector<ForwardMap> maps(masks.size());
  parallel_for(static_cast<int64_t>(masks.size()), [&](int64_t i, int) {
    maps[static_cast<size_t>(i)] = Cover(masks[static_cast<size_t>(i)], shape).run();
  });
  size_t entries = 0, spans = 0, rows = 0;
  for (const ForwardMap& map : maps)
    entries += map.entries.size(), spans += map.spans.size(), rows += map.work.size();
  check_size(entries, spans);
  ForwardMap out;
  out.row_tiles = maps.front().row_tiles;
  out.rows_per_tile = shape.rows;
  out.work.reserve(rows);
  out.entries.reserve(entries);
  out.spans.reserve(spans);
  for (ForwardMap& map : maps) {
    LONGSPAN_CHECK(map.row_tiles == out.row_tiles, "the masks of one problem differ in rows");
    append(out, map);
    map = ForwardMap();
  }
  return out;
}

}  // namespace longspan::sm90
