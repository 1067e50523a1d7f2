// Lowering for the forward kernel: a sweep over the row tiles; each covers its visible keys from left to
// right.
#include "kernels/sm90/forward_map.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
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
    if (std::all_of(pieces.begin(), pieces.end(), [](const Piece* p) { return p->rectangular(); }))
      return draw_rectangles(pieces, column, rows);
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
    const int32_t q_begin = lone.side(0), q_end = lone.side(1), k_begin = lone.side(2), k_end = lone.side(3),
                  lo = lone.lo(), hi = lone.hi();
    uint32_t* const spans = spans_.data() + first;
    for (int32_t row = q_begin; row < q_end; ++row) {
      const int32_t begin = std::max(k_begin, row + lo), end = std::min(k_end, row + hi + 1);
      spans[row] = begin < end ? static_cast<uint32_t>(begin) | static_cast<uint32_t>(end) << 16 : 0;
    }
    // Both ends move to the right from row to row: the last row ends last, and what it and the first one see,
    // all see.
    const bool all = q_begin == 0 && q_end == rows;
    const uint32_t clean =
        all ? steps_within(std::max({k_begin, q_end - 1 + lo, 0}), std::max(std::min(k_end, hi + 1), 0)) : 0;
    return described(first, 1, std::min(k_end, q_end + hi), clean);
  }

  // Each row's intervals from left to right, those that touch joined, one to a layer.
  Layers draw(const std::vector<const Piece*>& pieces, int64_t column, int32_t rows) {
    const auto height = static_cast<size_t>(shape_.rows);
    drawn_.assign(height, 0);
    for (int32_t row = 0; row < rows; ++row) {
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

  // The same for rectangles, between whose edges all rows see the same: from a sketch that has, for each such
  // stretch of rows, its end and the number of intervals in a word, then the intervals.
  Layers draw_rectangles(const std::vector<const Piece*>& pieces, int64_t column, int32_t rows) {
    edges_.assign({0, rows});
    for (const Piece* piece : pieces) {
      edges_.push_back(piece->q_begin);
      edges_.push_back(piece->q_end);
    }
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
    sketch_.clear();
    size_t before = 0, layers = 1;
    for (size_t i = 0; i + 1 < edges_.size(); ++i) {
      const size_t head = sketch_.size();
      sketch_.push_back(0);
      for (const Piece* piece : pieces) {
        if (edges_[i] < piece->q_begin || edges_[i] >= piece->q_end) continue;
        const auto begin = static_cast<uint32_t>(std::max<int64_t>(piece->begin - column, 0)),
                   end = static_cast<uint32_t>(std::min<int64_t>(piece->end - column, shape_.columns));
        if (sketch_.size() > head + 1 && sketch_.back() >> 16 == begin)
          sketch_.back() = (sketch_.back() & 0xffff) | end << 16;
        else
          sketch_.push_back(begin | end << 16);
      }
      const size_t count = sketch_.size() - head - 1;
      const auto at = [&](size_t word) { return sketch_.begin() + static_cast<std::ptrdiff_t>(word); };
      layers = std::max(layers, count);
      if (head > 0 && std::equal(at(before) + 1, at(head), at(head) + 1, sketch_.end())) {
        sketch_.resize(head);
      } else {
        before = head;
      }
      sketch_[before] = static_cast<uint32_t>(edges_[i + 1]) | static_cast<uint32_t>(count) << 16;
    }

    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const uint32_t word : sketch_) hash = (std::rotl(hash, 23) ^ word) * 0xff51afd7ed558ccdu;
    for (auto [at, end] = sketches_.equal_range(hash); at != end; ++at)
      if (std::equal(sketch_.begin(), sketch_.end(), at->second.first.begin(), at->second.first.end()))
        return at->second.second;
    const auto height = static_cast<size_t>(shape_.rows);
    const size_t first = spans_.size();
    spans_.resize(first + layers * height, 0);
    size_t row = first;
    for (size_t i = 0; i < sketch_.size();) {
      const size_t end = first + (sketch_[i] & 0xffff), count = sketch_[i] >> 16;
      for (size_t layer = 0; layer < count; ++layer)
        std::fill(spans_.begin() + static_cast<std::ptrdiff_t>(row + layer * height),
                  spans_.begin() + static_cast<std::ptrdiff_t>(end + layer * height), sketch_[i + 1 + layer]);
      row = end;
      i += 1 + count;
    }
    const Layers drawn = described(first, static_cast<int32_t>(layers), rows);
    sketches_.emplace(hash, std::pair(sketch_, drawn));
    return drawn;
  }

  // The steps of which all columns lie in [begin, end), by bit.
  static uint32_t steps_within(int32_t begin, int32_t end) {
    const int32_t from = (begin + kStepKeys - 1) / kStepKeys, to = end / kStepKeys;
    return from < to ? ((1u << to) - 1) & ~((1u << from) - 1) : 0;
  }

  // Rows past the mask's last see nothing and ask for nothing, so they are left out.
  Layers described(size_t first, int32_t count, int32_t rows) const {
    const auto height = static_cast<size_t>(shape_.rows);
    int32_t last = 0;
    uint32_t clean = ~0u;
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      if (row > 0 && alike(first + row, static_cast<size_t>(count))) continue;
      uint32_t whole = 0;
      for (size_t layer = 0; layer < static_cast<size_t>(count); ++layer) {
        const uint32_t span = spans_[first + layer * height + row];
        const auto begin = static_cast<int32_t>(span & 0xffff), end = static_cast<int32_t>(span >> 16);
        last = std::max(last, end);
        whole |= steps_within(begin, end);
      }
      clean &= whole;
    }
    return described(first, count, last, clean);
  }

  // `last`: where the columns end that any row sees; `clean`: the steps that every row sees whole.
  Layers described(size_t first, int32_t count, int32_t last, uint32_t clean) const {
    const auto steps = static_cast<int>((last + kStepKeys - 1) / kStepKeys);
    const uint32_t cut = ~clean & 0xffff;
    const int all = shape_.columns / kStepKeys;
    return {static_cast<int32_t>(first / static_cast<size_t>(shape_.rows)), count,
            TileCut(steps, cut, count).bits, steps == all && (cut & ((1u << all) - 1)) == 0};
  }

  // Whether the row at this span sees what the row before it sees.
  bool alike(size_t span, size_t count) const {
    for (; count > 0; --count, span += static_cast<size_t>(shape_.rows))
      if (spans_[span] != spans_[span - 1]) return false;
    return true;
  }

  TileShape shape_;
  std::vector<uint32_t>& spans_;
  std::array<Place, 1024> places_;                      // of lone pieces
  std::unordered_multimap<uint64_t, Layers> drawings_;  // of several pieces, by the hash of what is drawn
  std::unordered_multimap<uint64_t, std::pair<std::vector<uint32_t>, Layers>> sketches_;
  std::vector<uint32_t> drawn_, sketch_;
  std::vector<int32_t> edges_;
  std::vector<std::pair<uint32_t, uint32_t>> seen_;
};

void check_size(size_t entries, size_t spans) {
  LONGSPAN_CHECK(entries <= std::numeric_limits<uint32_t>::max() &&
                     spans <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "{} entries and {} spans are more than a plan can number", entries, spans);
}

// Some of a mask's row tiles, and where a sweep over them begins.
struct Part {
  const Mask* mask = nullptr;
  int32_t first_tile = 0, end_tile = 0;
  BandList::Iterator next;   // the first band that begins in the part or after it
  std::vector<Band> active;  // bands that begin before the part and reach into it
};

// Of `count` parts of about as many row tiles each.
void divide(const Mask& mask, TileShape shape, int32_t row_tiles, int32_t count, std::vector<Part>& parts) {
  const size_t first = parts.size();
  for (int64_t i = 0; i < count; ++i)
    parts.push_back({&mask,
                     static_cast<int32_t>(row_tiles * i / count),
                     static_cast<int32_t>(row_tiles * (i + 1) / count),
                     mask.bands().begin(),
                     {}});
  if (count == 1) return;
  const auto begin_of = [&](size_t part) { return int64_t{parts[part].first_tile} * shape.rows; };
  size_t part = first;
  const auto end = mask.bands().end();
  for (auto at = mask.bands().begin(); at != end; ++at) {
    const Band band = *at;
    for (; part + 1 < parts.size() && band.q.begin >= begin_of(part + 1); ++part) parts[part + 1].next = at;
    for (size_t later = part + 1; later < parts.size() && begin_of(later) < band.q.end; ++later)
      parts[later].active.push_back(band);
  }
  for (++part; part < parts.size(); ++part) parts[part].next = end;
}

// Lowers a part of a mask. Its rows are left in their order.
class Cover {
 public:
  // `out` is empty.
  Cover(Part& part, TileShape shape, ForwardMap& out)
      : part_(part),
        mask_(*part.mask),
        shape_(shape),
        out_(out),
        rows_(out.work),
        layers_(shape, out.spans),
        active_(std::move(part.active)) {}

  void run() {
    const int64_t rows = mask_.rows();
    rows_.resize(static_cast<size_t>(part_.end_tile - part_.first_tile));
    out_.entries.reserve(size_t{4} * rows_.size());
    auto next = part_.next;
    const auto end = mask_.bands().end();
    int64_t next_row = next == end ? rows : (*next).q.begin;
    for (int32_t t = part_.first_tile; t < part_.end_tile; ++t) {
      const auto at = static_cast<size_t>(t - part_.first_tile);
      const int64_t first = int64_t{t} * shape_.rows, last = std::min<int64_t>(first + shape_.rows, rows);
      const bool changes = next_row < last || first_end_ < last;
      if (!changes && all_rectangles_ && at > 0) {  // sees what the row tile before it sees
        rows_[at] = rows_[at - 1];
        rows_[at].row_tile = t;
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
    rows_[static_cast<size_t>(t - part_.first_tile)] = {
        t, static_cast<uint32_t>(row_first_), static_cast<int32_t>(out_.entries.size() - row_first_),
        static_cast<int32_t>(row_steps_ + 2 * row_tiles_)};
    out_.tiles += row_tiles_;
    out_.steps += row_steps_;
  }

  // A row tile that shows one piece: the usual one.
  void cover(const Piece& piece, int32_t rows) {
    for (int64_t column = piece.begin; column < piece.end;) {
      const int64_t count = piece.all_begin <= column ? whole_tiles(piece.all_end - column) : 0;
      if (count > 0) {
        push_full(column, count);
        column += count * shape_.columns;
      } else {
        push_partial(column, layers_.find(piece, column, rows));
        column += shape_.columns;
      }
    }
  }

  // Of so many columns, less than 2^31: short divisions are fast ones.
  int64_t whole_tiles(int64_t columns) const {
    if (columns < shape_.columns) return 0;
    return static_cast<uint32_t>(columns) / static_cast<uint32_t>(shape_.columns);
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
        const int64_t count = whole_tiles(piece.all_end - column);
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

  const Part& part_;
  const Mask& mask_;
  TileShape shape_;
  ForwardMap& out_;
  std::vector<MapRow>& rows_;
  LayerTable layers_;
  std::vector<Band> active_;
  int64_t first_end_ = 0;  // smallest row end of active_
  bool all_rectangles_ = false;
  std::vector<Piece> pieces_;  // of the current row tile, by `begin`
  std::vector<const Piece*> hits_;
  size_t row_first_ = 0;
  int64_t row_tiles_ = 0, row_steps_ = 0;
  bool last_is_full_ = false;
};

void append(ForwardMap& out, const ForwardMap& map) {
  const auto first_layer = static_cast<int32_t>(out.spans.size() / static_cast<size_t>(out.rows_per_tile));
  const auto first_entry = static_cast<uint32_t>(out.entries.size());
  out.spans.insert(out.spans.end(), map.spans.begin(), map.spans.end());
  out.entries.insert(out.entries.end(), map.entries.begin(), map.entries.end());
  if (first_layer > 0) {
    for (size_t i = first_entry; i < out.entries.size(); ++i)
      if (out.entries[i].code < 0) out.entries[++i].code += first_layer;
  }
  for (MapRow row : map.work) {
    row.first_entry += first_entry;
    out.work.push_back(row);
  }
  out.tiles += map.tiles;
  out.steps += map.steps;
}

// The heaviest first, ties by index: by counting, as costs are small numbers or can be made so.
void order(std::span<MapRow> rows, std::vector<MapRow>& scratch) {
  int32_t most = 0;
  bool ordered = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    most = std::max(most, rows[i].cost);
    ordered = ordered && (i == 0 || rows[i].cost <= rows[i - 1].cost);
  }
  if (ordered) return;
  int shift = 0;
  while (most >> shift >= kCosts) ++shift;
  scratch.assign(rows.begin(), rows.end());
  std::array<int32_t, kCosts + 1> place{};
  const auto bucket = [&](const MapRow& row) {
    return static_cast<size_t>((most >> shift) - (row.cost >> shift));
  };
  for (const MapRow& row : rows) ++place[bucket(row) + 1];
  for (size_t i = 1; i <= static_cast<size_t>(most >> shift); ++i) place[i] += place[i - 1];
  for (const MapRow& row : scratch) rows[static_cast<size_t>(place[bucket(row)]++)] = row;
}

// Into how many parts a mask is divided. Each has its own table of layers: masks of few bands are lowered
// faster by one thread.
int32_t parts_of(const Mask& mask, int32_t row_tiles) {
  constexpr int64_t kBands = 2048, kMost = 64;
  const auto bands = static_cast<int64_t>(mask.bands().size());
  return static_cast<int32_t>(
      std::clamp<int64_t>(bands / kBands, 1, std::min<int64_t>(kMost, std::max(row_tiles, 1))));
}

}  // namespace

size_t ForwardMap::bytes() const {
  return work.size() * sizeof(MapRow) + entries.size() * sizeof(MapEntry) + spans.size() * sizeof(uint32_t);
}

void lower_forward(const HeadMasks& masks, TileShape shape, ForwardMap& map) {
  LONGSPAN_CHECK(!masks.empty(), "a problem has at least one mask");
  LONGSPAN_CHECK(
      shape.columns % kStepKeys == 0 && 0 < shape.columns && shape.columns <= kMostSteps * kStepKeys,
      "tiles of {} keys: must be a multiple of {}, at most {}", shape.columns, kStepKeys,
      kMostSteps * kStepKeys);
  map.rows_per_tile = shape.rows;
  map.row_tiles = static_cast<int32_t>((masks.front().rows() + shape.rows - 1) / shape.rows);
  map.work.clear(), map.entries.clear(), map.spans.clear();
  map.tiles = map.steps = 0;
  std::vector<Part> parts;
  for (const Mask& mask : masks) {
    LONGSPAN_CHECK(mask.rows() == masks.front().rows(), "the masks of one problem differ in rows");
    divide(mask, shape, map.row_tiles, parts_of(mask, map.row_tiles), parts);
  }
  if (parts.size() == 1) {
    Cover(parts[0], shape, map).run();
  } else {
    std::vector<ForwardMap> maps(parts.size());
    parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i, int) {
      Cover(parts[static_cast<size_t>(i)], shape, maps[static_cast<size_t>(i)]).run();
    });
    size_t entries = 0, spans = 0;
    for (const ForwardMap& part : maps) entries += part.entries.size(), spans += part.spans.size();
    check_size(entries, spans);
    map.work.reserve(masks.size() * static_cast<size_t>(map.row_tiles));
    map.entries.reserve(entries);
    map.spans.reserve(spans);
    for (ForwardMap& part : maps) {
      append(map, part);
      part = ForwardMap();
    }
  }
  thread_local std::vector<MapRow> scratch;
  const auto row_tiles = static_cast<size_t>(map.row_tiles);
  for (size_t m = 0; m < masks.size(); ++m)
    order(std::span(map.work).subspan(m * row_tiles, row_tiles), scratch);
}

ForwardMap lower_forward(const HeadMasks& masks, TileShape shape) {
  ForwardMap map;
  lower_forward(masks, shape, map);
  return map;
}

}  // namespace longspan::sm90
