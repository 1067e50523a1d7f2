// Lowers masks by the sweep of tile maps to the entries that the kernel reads.
#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/sm90/forward/planner/map.h"
#include "mask/lowering/heaviest_first.h"
#include "mask/lowering/sweep.h"

namespace longspan::sm90 {
namespace {

constexpr int kMostSteps = 16;  // of a tile
constexpr int32_t kMostCost = (int32_t{1} << (32 - kRowBits)) - 1;
constexpr uint32_t kCosts = 2048;  // that the order of row tiles tells apart

void check_size(size_t entries, size_t spans) {
  LONGSPAN_CHECK(entries <= std::numeric_limits<uint32_t>::max() &&
                     spans <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "{} entries and {} spans: a plan numbers at most 2^32 and 2^31", entries, spans);
}

// The steps whose columns all lie in [begin, end), one bit each.
uint32_t steps_within(int32_t begin, int32_t end) {
  const int32_t from = (begin + kStepKeys - 1) / kStepKeys, to = end / kStepKeys;
  return from < to ? ((1u << to) - 1) & ~((1u << from) - 1) : 0;
}

// Of a partial tile whose first `rows` rows exist: the others see nothing, and must not make steps cut.
TileCut cut_of(PartialTable& table, const Partial& partial, size_t rows) {
  int32_t last = 0;                           // the end of the columns that any row sees
  std::array<uint32_t, kMostTileRows> whole;  // the steps that a row sees in full
  std::fill_n(whole.begin(), rows, 0);
  for (int32_t layer = partial.first; layer < partial.first + partial.layers; ++layer) {
    const std::span<const Span> spans = table.layer(layer);
    for (size_t row = 0; row < rows; ++row) {
      last = std::max<int32_t>(last, spans[row].end);
      whole[row] |= steps_within(spans[row].begin, spans[row].end);
    }
  }
  uint32_t clean = ~0u;
  for (size_t row = 0; row < rows; ++row) clean &= whole[row];
  return {(last + kStepKeys - 1) / kStepKeys, ~clean & 0xffff, partial.layers};
}

// Writes the entries of a range of row tiles, for a Sweep. Row tiles stay in the order of their rows.
class EntryWriter {
 public:
  using Item = MapEntry;
  using PartialItems = std::array<MapEntry, 2>;
  static constexpr size_t kRoom = kEntryBatch;  // so a list there needs no padding

  // The contents of `out` are overwritten.
  EntryWriter(const Tiling& tiling, const SweepRange& range, bool all_rows, PartialTable& partials,
              ForwardMap& out)
      : tiling_(tiling),
        height_(tiling.shape.rows),
        steps_of_tile_(tiling.shape.columns / kStepKeys),
        all_rows_(all_rows),
        partials_(partials),
        out_(out),
        row_tile_(range.first_tile) {
    out.work.resize(range.end_tile - range.first_tile);
    row_ = out.work.data();
  }
  // Drops the memory that is left, when all row tiles are written.
  void finish() { out_.entries.resize(end_); }

  void begin() { sums_ = {}, first_ = end_; }
  void push_full(int32_t column, int32_t count) {
    push({column, count});
    sums_ = sums_ + sums_of_full(count);
  }
  void extend_full(int32_t count) {
    out_.entries[end_ - 1].code += count;
    sums_ = sums_ + sums_of_full(count);
  }
  void push_partial(int32_t column, int32_t number) {
    if (count() % kEntryBatch == kEntryBatch - 1) push({});
    const int64_t rows = all_rows_ ? height_ : tiling_.rows_of(row_tile_).size();
    const MapEntry second = rows == height_ ? known(number) : draw(number, rows);
    push({column, -1});
    push(second);
    sums_ = sums_ + sums_of(second);
  }
  MapEntry* room() {
    if (out_.entries.size() < end_ + kRoom) grow();
    return out_.entries.data() + end_;
  }
  void end(const MapEntry* to, const ListSums& sums) {
    first_ = std::exchange(end_, to - out_.entries.data());
    sums_ = sums;
    end();
  }
  void end() {
    const Range rows = tiling_.rows_of(row_tile_++);
    const int32_t cost = std::min(sums_.steps + 2 * (sums_.tiles + sums_.partial), kMostCost);
    *row_++ = {static_cast<int32_t>(rows.begin), static_cast<uint32_t>(first_), static_cast<int32_t>(count()),
               static_cast<uint32_t>(cost), static_cast<uint32_t>(rows.size())};
    out_.tiles += sums_.tiles;
    out_.steps += sums_.steps;
  }
  void repeat(int64_t count) {
    MapRow row = row_[-1];
    for (const MapRow* const last = row_ + count; row_ != last;) {
      const Range rows = tiling_.rows_of(row_tile_++);
      row.first_row = static_cast<int32_t>(rows.begin);
      row.rows = static_cast<uint32_t>(rows.size());
      *row_++ = row;
    }
    out_.tiles += count * sums_.tiles;
    out_.steps += count * sums_.steps;
  }

  const ListSums& sums() const { return sums_; }
  size_t count() const { return end_ - first_; }
  const MapEntry& back() const { return out_.entries[end_ - 1]; }
  size_t last_count() const { return count(); }
  const MapEntry& last_item(size_t i) const { return out_.entries[first_ + i]; }

  ListSums sums_of_full(int32_t tiles) const { return {tiles, tiles * steps_of_tile_}; }
  ListSums sums_of_partial(int32_t number) { return sums_of(known(number)); }
  PartialItems partial(int32_t number) { return {{{0, -1}, known(number)}}; }
  static int32_t& place(MapEntry& entry) { return entry.column; }
  static size_t items_at(const MapEntry& entry) { return entry.code < 0 ? 2 : 1; }

 private:
  void push(MapEntry entry) {
    if (out_.entries.size() == end_) grow();
    out_.entries[end_++] = entry;
  }
  [[gnu::noinline]] void grow() {
    constexpr size_t kMore = 1024;  // at a time, since a vector sets them to zero
    if (out_.entries.capacity() < end_ + kMore)
      out_.entries.reserve(std::max(2 * end_ + kMore, 4 * out_.work.size()));
    out_.entries.resize(end_ + kMore);
  }

  // The second entry of a partial tile that has all rows.
  MapEntry known(int32_t number) {
    while (std::ssize(known_) <= number) known_.push_back(draw(static_cast<int32_t>(known_.size()), height_));
    return known_[number];
  }
  MapEntry draw(int32_t number, int64_t rows) {
    const Partial& partial = partials_.partial(number);
    return {static_cast<int32_t>(cut_of(partials_, partial, rows).bits), partial.first};
  }
  static ListSums sums_of(const MapEntry& second) {
    return {1, TileCut(static_cast<uint32_t>(second.column)).steps(), 1};
  }

  const Tiling& tiling_;
  const int64_t height_;
  const int32_t steps_of_tile_;
  const bool all_rows_;  // partial tiles of row tiles with fewer rows are drawn with all
  PartialTable& partials_;
  ForwardMap& out_;
  int64_t row_tile_ = 0;
  MapRow* row_ = nullptr;
  size_t first_ = 0, end_ = 0;  // entries of the last row tile
  ListSums sums_;               // of these
  std::vector<MapEntry> known_;
};

// Lowers a range of row tiles into `out`, whose contents are overwritten.
void lower_range(const Mask& mask, const Tiling& tiling, SweepRange range, ForwardMap& out) {
  thread_local PartialTable partials;
  partials.begin(tiling.shape);
  const bool all_rows = !tiling.starts.empty() && mask.bands().rectangular();
  EntryWriter writer(tiling, range, all_rows, partials, out);
  Sweep<EntryWriter>(mask.bands(), tiling, std::move(range), partials, writer).run();
  writer.finish();
  out.spans = partials.take_spans();
  check_size(out.entries.size(), out.spans.size());
}

void append(ForwardMap& out, const ForwardMap& map) {
  const auto first_layer = static_cast<int32_t>(out.spans.size() / out.rows_per_tile);
  const auto first_entry = static_cast<uint32_t>(out.entries.size());
  out.spans.insert(out.spans.end(), map.spans.begin(), map.spans.end());
  out.entries.insert(out.entries.end(), map.entries.begin(), map.entries.end());
  if (first_layer > 0) {
    for (size_t i = first_entry; i < out.entries.size(); ++i)
      if (out.entries[i].code < 0) out.entries[++i].code += first_layer;
  }
  for (MapRow row : map.work) row.first_entry += first_entry, out.work.push_back(row);
  out.tiles += map.tiles;
  out.steps += map.steps;
}

// How many ranges of row tiles a mask is lowered in. Each has its own partial tiles, so masks of few bands
// are lowered faster by one thread.
int64_t range_count(const Mask& mask, int64_t row_tiles) {
  constexpr int64_t kBands = 2048, kMost = 64;
  return std::clamp<int64_t>(static_cast<int64_t>(mask.bands().size()) / kBands, 1,
                             std::min(kMost, std::max<int64_t>(row_tiles, 1)));
}

}  // namespace

ForwardMap lower_forward(const HeadMasks& masks, TileShape shape, RowTiles row_tiles, ForwardMap map) {
  LONGSPAN_CHECK(!masks.empty(), "a problem has at least one mask");
  LONGSPAN_CHECK(
      shape.columns % kStepKeys == 0 && 0 < shape.columns && shape.columns <= kMostSteps * kStepKeys,
      "tiles of {} keys: must be a multiple of {}, at most {}", shape.columns, kStepKeys,
      kMostSteps * kStepKeys);
  LONGSPAN_CHECK(0 < shape.rows && shape.rows <= kMostTileRows, "tiles of {} rows: must be 1 to 256",
                 shape.rows);
  struct Task {
    size_t mask = 0;
    SweepRange range;
  };
  std::vector<Tiling> tilings;
  std::vector<Task> tasks;
  map.row_tiles = 0;
  for (size_t m = 0; m < masks.size(); ++m) {
    LONGSPAN_CHECK(masks[m].rows() == masks.front().rows(), "the masks of one problem differ in rows");
    Tiling& tiling = tilings.emplace_back(Tiling::flush(masks[m], shape, row_tiles));
    tiling.narrow = narrow_keys(shape.columns);
    const int64_t count = range_count(masks[m], tiling.row_tiles());
    for (SweepRange& range : split_into_ranges(masks[m].bands(), tiling, count))
      tasks.push_back({m, std::move(range)});
    map.row_tiles = std::max(map.row_tiles, static_cast<int32_t>(tiling.row_tiles()));
  }
  const size_t per_mask = map.row_tiles;
  map.rows_per_tile = shape.rows;
  map.work.clear(), map.spans.clear();  // entries are overwritten
  map.tiles = map.steps = 0;
  if (tasks.size() == 1) {
    lower_range(masks[0], tilings[0], std::move(tasks[0].range), map);
  } else {
    std::vector<ForwardMap> maps(tasks.size());
    parallel_for(tasks.size(), [&](int64_t i, int) {
      Task& task = tasks[i];
      lower_range(masks[task.mask], tilings[task.mask], std::move(task.range), maps[i]);
    });
    size_t entries = 0, spans = 0;
    for (const ForwardMap& one : maps) entries += one.entries.size(), spans += one.spans.size();
    check_size(entries, spans);
    map.work.reserve(masks.size() * per_mask);
    map.entries.clear();
    map.entries.reserve(entries);
    map.spans.reserve(spans);
    for (size_t i = 0; i < tasks.size(); ++i) {
      map.work.resize(std::max(map.work.size(), tasks[i].mask * per_mask));
      append(map, std::exchange(maps[i], {}));
    }
    map.work.resize(masks.size() * per_mask);
  }
  for (size_t m = 0; m < masks.size(); ++m)
    sort_heaviest_first(
        std::span(map.work).subspan(m * per_mask, per_mask), [](const MapRow& row) { return row.cost; },
        kCosts);
  return map;
}

}  // namespace longspan::sm90
