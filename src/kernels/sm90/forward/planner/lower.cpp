// A sweep over the row tiles of a mask. Each row tile covers its visible keys with tiles from left to right.
#include "kernels/sm90/forward/planner/lower.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/sm90/forward/planner/layers.h"
#include "kernels/sm90/forward/planner/stretch.h"

namespace longspan::sm90 {
namespace {

constexpr int32_t kCosts = 2048;  // that order() tells apart

void check_size(size_t entries, size_t spans) {
  LONGSPAN_CHECK(entries <= std::numeric_limits<uint32_t>::max() &&
                     spans <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "{} entries and {} spans: a plan numbers at most 2^32 and 2^31", entries, spans);
}

// A range of a mask's row tiles, and the state with which a sweep over them begins.
struct LoweringTask {
  const Mask* mask = nullptr;
  // The first tokens of row tiles, and the end of the last one; null: even row tiles.
  const std::vector<int32_t>* starts = nullptr;
  int32_t first_tile = 0, end_tile = 0;
  BandList::Iterator next;   // the first band that begins in the range or after it
  std::vector<Band> active;  // bands that begin before the range and reach into it
};

// The first tokens of row tiles that begin anew at each edge of a run of rows, and the end of the last one.
std::vector<int32_t> starts_of_blocks(const Mask& mask, int32_t rows_per_tile) {
  std::vector<int32_t> edges = {0, static_cast<int32_t>(mask.rows())};
  for (const BandList::Group& group : mask.bands().groups()) {
    edges.push_back(group.q_begin);
    edges.push_back(group.q_end);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<int32_t> starts;
  starts.reserve(static_cast<size_t>(mask.rows() / rows_per_tile) + edges.size());
  for (size_t i = 0; i + 1 < edges.size(); ++i)
    for (int32_t row = edges[i]; row < edges[i + 1]; row += rows_per_tile) starts.push_back(row);
  starts.push_back(edges.back());
  return starts;
}

// Splits a mask's row tiles into `count` ranges of about equal size.
void add_tasks(const Mask& mask, const std::vector<int32_t>* starts, TileShape shape, int32_t row_tiles,
               int32_t count, std::vector<LoweringTask>& tasks) {
  const size_t first = tasks.size();
  for (int64_t i = 0; i < count; ++i)
    tasks.push_back({&mask,
                     starts,
                     static_cast<int32_t>(row_tiles * i / count),
                     static_cast<int32_t>(row_tiles * (i + 1) / count),
                     mask.bands().begin(),
                     {}});
  if (count == 1) return;
  const auto begin_of = [&](size_t task) {
    const int32_t tile = tasks[task].first_tile;
    return starts != nullptr ? int64_t{(*starts)[static_cast<size_t>(tile)]} : int64_t{tile} * shape.rows;
  };
  size_t task = first;
  const BandList& bands = mask.bands();
  for (size_t g = 0; g < bands.groups().size(); ++g) {
    const BandList::Group& group = bands.groups()[g];
    for (; task + 1 < tasks.size() && group.q_begin >= begin_of(task + 1); ++task)
      tasks[task + 1].next = BandList::Iterator(&bands, bands.group_begin(g), g);
    for (size_t later = task + 1; later < tasks.size() && begin_of(later) < group.q_end; ++later)
      for (size_t i = bands.group_begin(g); i < bands.group_end(g); ++i)
        tasks[later].active.push_back(bands.band(g, i));
  }
  for (++task; task < tasks.size(); ++task) tasks[task].next = bands.end();
}

// Lowers one range. Its row tiles stay in the order of their rows.
class Cover {
 public:
  // `out` is empty, but for its row tiles, which are overwritten.
  Cover(LoweringTask& task, TileShape shape, ForwardMap& out)
      : task_(task),
        mask_(*task.mask),
        extends_(task.starts != nullptr && mask_.bands().rectangular()),
        shape_(shape),
        out_(out),
        rows_(out.work),
        layers_(shape, out.spans),
        stretch_(shape, layers_, out),
        active_(std::move(task.active)) {}

  void run() {
    const int64_t rows = mask_.rows();
    rows_.resize(static_cast<size_t>(task_.end_tile - task_.first_tile));
    out_.entries.reserve(size_t{4} * rows_.size());
    if (cover_blocks()) return check_size(out_.entries.size(), out_.spans.size());
    auto next = task_.next;
    const auto end = mask_.bands().end();
    int64_t next_row = next == end ? rows : (*next).q.begin;
    MapRow row;  // the last one that was lowered
    for (int32_t t = task_.first_tile; t < task_.end_tile; ++t) {
      const auto at = static_cast<size_t>(t - task_.first_tile);
      const int64_t first = rows_of(t).begin, last = rows_of(t).end;
      if (all_rectangles_ && at > 0) {
        // A row tile sees what the one before it sees as long as no band begins or ends.
        const int64_t until = std::min(next_row, first_end_);
        if (last <= until) {
          t = repeat(t, until, row) - 1;
          continue;
        }
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
      row = rows_[at] = cover({first, last});
      // Row tiles from this one on whose rows all see the same bands.
      const int64_t alike =
          std::min<int64_t>((std::min(next_row, first_end_) - first) / shape_.rows, task_.end_tile - t);
      if (alike > 1 && may_stretch(first)) {
        const auto others = std::span(rows_).subspan(at + 1, static_cast<size_t>(alike) - 1);
        t += static_cast<int32_t>(stretch_.follow(one_, clipped_, others));
        all_rectangles_ = false;
        continue;
      }
      // The next row tile sees the same only if all rows of this one do.
      all_rectangles_ =
          std::all_of(clipped_.begin(), clipped_.end(),
                      [&](const ClippedBand& band) {
                        return band.rectangular() && band.q_begin == 0 && band.q_end >= last - first;
                      }) &&
          (last - first == shape_.rows || extends_);
    }
    check_size(out_.entries.size(), out_.spans.size());
  }

 private:
  Range rows_of(int32_t tile) const {
    if (task_.starts != nullptr)
      return {(*task_.starts)[static_cast<size_t>(tile)], (*task_.starts)[static_cast<size_t>(tile) + 1]};
    const int64_t first = int64_t{tile} * shape_.rows;
    return {first, std::min<int64_t>(first + shape_.rows, mask_.rows())};
  }

  // Row tiles from `tile` on that end at row `until` or earlier get copies of `row` at their places.
  // Returns the first one after them.
  int32_t repeat(int32_t tile, int64_t until, const MapRow& row) {
    const uint32_t first_entry = row.first_entry, cost = row.cost;
    const int32_t entries = row.entries, begin = tile;
    MapRow* to = rows_.data() + (tile - task_.first_tile);
    for (; tile < task_.end_tile; ++tile) {
      const auto [first, last] = rows_of(tile);
      if (last > until) break;
      *to++ = {static_cast<int32_t>(first), first_entry, entries, cost, static_cast<uint32_t>(last - first)};
    }
    out_.tiles += (tile - begin) * row_tiles_;
    out_.steps += (tile - begin) * row_steps_;
    return tile;
  }

  // Lowers the whole range at once if its bands are blocks that tiles divide, so that no row tile lies in
  // two groups of bands and no tile in two stretches of keys. Otherwise returns false and changes nothing;
  // that is found out early.
  bool cover_blocks() {
    const std::vector<BandList::Group>& groups = mask_.bands().groups();
    if (!mask_.bands().rectangular()) return false;
    size_t group = 0, covered_group = groups.size();
    MapRow row;
    const auto give_up = [&] {
      out_.entries.clear();
      out_.tiles = out_.steps = 0;
      return false;
    };
    for (int32_t t = task_.first_tile; t < task_.end_tile; ++t) {
      const Range rows = rows_of(t);
      while (group < groups.size() && groups[group].q_end <= rows.begin) ++group;
      row.first_row = static_cast<int32_t>(rows.begin);
      row.rows = static_cast<uint32_t>(rows.size());
      if (group == groups.size() || groups[group].q_begin >= rows.end) {
        row.entries = 0, row.cost = 0;
        covered_group = groups.size();
        row_tiles_ = 0;
      } else {
        if (groups[group].q_begin > rows.begin || groups[group].q_end < rows.end) return give_up();
        if (group + 1 < groups.size() && groups[group + 1].q_begin < groups[group].q_end) return give_up();
        if (covered_group != group && !cover_group(group, row)) return give_up();
        covered_group = group;
      }
      rows_[static_cast<size_t>(t - task_.first_tile)] = row;
      out_.tiles += row_tiles_;
      out_.steps += row_tiles_ * (shape_.columns / kStepKeys);
    }
    return true;
  }

  bool cover_group(size_t group, MapRow& row) {
    const BandList& bands = mask_.bands();
    row_first_ = out_.entries.size();
    MapEntry entry;  // not written yet
    int64_t end = 0;
    row_tiles_ = 0;
    for (size_t i = bands.group_begin(group); i < bands.group_end(group); ++i) {
      const Range keys = bands.band(group, i).k;
      const int64_t tiles = whole_tiles(keys.size());
      if (keys.begin < end || tiles * shape_.columns != keys.size()) return false;
      if (keys.begin > end || entry.code == 0) {
        if (entry.code > 0) out_.entries.push_back(entry);
        entry = {static_cast<int32_t>(keys.begin), 0};
      }
      entry.code += static_cast<int32_t>(tiles);
      row_tiles_ += tiles;
      end = keys.end;
    }
    if (entry.code > 0) out_.entries.push_back(entry);
    row.first_entry = static_cast<uint32_t>(row_first_);
    row.entries = static_cast<int32_t>(out_.entries.size() - row_first_);
    row.cost = cost_of(row_tiles_, row_tiles_ * (shape_.columns / kStepKeys));
    return true;
  }

  // Whether the next row tiles may follow from this one: few bands, all of whose rows the row tile has, and
  // not rectangles alone, which repeat() copies.
  bool may_stretch(int64_t first_row) const {
    bool rectangles = true;
    for (const Band& band : active_) {
      if (band.q.begin > first_row) return false;
      rectangles = rectangles && band.rectangular();
    }
    return active_.size() <= Stretch::kMostBands && !rectangles;
  }

  void add(const Band& band, const Range& tile_rows) {
    clipped_.push_back(clip(band, tile_rows));
    if (extends_) clipped_.back().q_end = shape_.rows;
  }

  MapRow cover(const Range& tile_rows) {
    const auto rows = extends_ ? shape_.rows : static_cast<int32_t>(tile_rows.size());
    clipped_.clear();
    for (const Band& band : active_) add(band, tile_rows);
    const auto by_begin = [](const ClippedBand& a, const ClippedBand& b) { return a.begin < b.begin; };
    if (!std::is_sorted(clipped_.begin(), clipped_.end(), by_begin))
      std::sort(clipped_.begin(), clipped_.end(), by_begin);

    row_first_ = out_.entries.size();
    row_tiles_ = row_steps_ = 0;
    one_.last_column = -1;
    if (clipped_.size() == 1)
      cover(clipped_.front(), rows);
    else
      cover(rows);
    out_.tiles += row_tiles_;
    out_.steps += row_steps_;
    one_.row = {static_cast<int32_t>(tile_rows.begin), static_cast<uint32_t>(row_first_),
                static_cast<int32_t>(out_.entries.size() - row_first_), cost_of(row_tiles_, row_steps_),
                static_cast<uint32_t>(tile_rows.size())};
    one_.tiles = row_tiles_, one_.steps = row_steps_;
    return one_.row;
  }

  // Only the last band is left, from `column` on.
  void reach_last_band(int64_t column) {
    const bool full_before = out_.entries.size() > row_first_ && last_is_full_;
    one_.last_column = column;
    one_.full = full_before ? out_.entries.back() : MapEntry{};
    one_.entries_before = static_cast<int32_t>(out_.entries.size() - row_first_) - (full_before ? 1 : 0);
    one_.tiles_before = row_tiles_, one_.steps_before = row_steps_;
  }

  // The common case: a row tile with one band.
  void cover(const ClippedBand& band, int32_t rows) {
    reach_last_band(band.begin);
    for (int64_t column = band.begin; column < band.end;) {
      const int64_t count = band.all_begin <= column ? whole_tiles(band.all_end - column) : 0;
      if (count > 0) {
        push_full(column, count);
        column += count * shape_.columns;
      } else {
        push_partial(column, layers_.find(band, column, rows));
        column += shape_.columns;
      }
    }
  }

  // `columns` is below 2^31: 32-bit divisions are faster.
  int64_t whole_tiles(int64_t columns) const {
    if (columns < shape_.columns) return 0;
    return static_cast<uint32_t>(columns) / static_cast<uint32_t>(shape_.columns);
  }

  void cover(int32_t rows) {
    int64_t covered = 0;
    for (size_t i = 0; i < clipped_.size();) {
      const ClippedBand& band = clipped_[i];
      if (band.end <= covered) {
        ++i;
        continue;
      }
      const int64_t column = std::max(covered, band.begin);
      if (i + 1 == clipped_.size() && one_.last_column < 0) reach_last_band(column);
      if (band.all_begin <= column && band.all_end - column >= shape_.columns) {
        const int64_t count = whole_tiles(band.all_end - column);
        push_full(column, count);
        covered = column + count * shape_.columns;
        continue;
      }
      const int64_t end = column + shape_.columns;
      hits_.clear();
      for (size_t j = i; j < clipped_.size() && clipped_[j].begin < end; ++j)
        if (clipped_[j].end > column) hits_.push_back(&clipped_[j]);
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

  const LoweringTask& task_;
  const Mask& mask_;
  // The last row tile of a block has fewer rows. The missing ones are drawn like the others, so that the
  // tile equals those of other blocks.
  const bool extends_;
  TileShape shape_;
  ForwardMap& out_;
  std::vector<MapRow>& rows_;
  LayerTable layers_;
  Stretch stretch_;
  std::vector<Band> active_;
  int64_t first_end_ = 0;  // the smallest end of rows in active_
  bool all_rectangles_ = false;
  std::vector<ClippedBand> clipped_;  // of the current row tile, by `begin`
  std::vector<const ClippedBand*> hits_;
  LoweredRow one_;  // the last row tile that was lowered in full
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

// Heaviest first, ties by index. A counting sort: costs are small numbers or are shifted to be.
void order(std::span<MapRow> rows, std::vector<MapRow>& scratch) {
  uint32_t most = 0, rises = 0;
  uint32_t before = ~uint32_t{0};
  for (const MapRow& row : rows) {
    const uint32_t cost = row.cost;
    most = std::max(most, cost);
    rises |= cost > before ? 1 : 0;
    before = cost;
  }
  if (rises == 0) return;
  int shift = 0;
  while (most >> shift >= kCosts) ++shift;
  scratch.assign(rows.begin(), rows.end());
  std::array<int32_t, kCosts + 1> place;
  std::fill_n(place.begin(), (most >> shift) + 2, 0);
  const auto bucket = [&](const MapRow& row) {
    return static_cast<size_t>((most >> shift) - (row.cost >> shift));
  };
  // Neighbours often cost the same, so the counter in use stays in a register.
  const auto visit = [&](size_t shifted, const auto& use) {
    size_t at = bucket(scratch.front());
    int32_t count = place[at + shifted];
    for (const MapRow& row : scratch) {
      if (const size_t next = bucket(row); next != at) {
        place[at + shifted] = count;
        at = next;
        count = place[at + shifted];
      }
      use(row, count++);
    }
    place[at + shifted] = count;
  };
  visit(1, [](const MapRow&, int32_t) {});
  for (size_t i = 1; i <= static_cast<size_t>(most >> shift); ++i) place[i] += place[i - 1];
  visit(0, [&](const MapRow& row, int32_t at) { rows[static_cast<size_t>(at)] = row; });
}

// How many ranges a mask is split into. Each has its own table of layers, so masks of few bands are lowered
// faster by one thread.
int32_t task_count(const Mask& mask, int32_t row_tiles) {
  constexpr int64_t kBands = 2048, kMost = 64;
  const auto bands = static_cast<int64_t>(mask.bands().size());
  return static_cast<int32_t>(
      std::clamp<int64_t>(bands / kBands, 1, std::min<int64_t>(kMost, std::max(row_tiles, 1))));
}

}  // namespace

void lower_forward(const HeadMasks& masks, TileShape shape, RowTiles row_tiles, ForwardMap& map) {
  LONGSPAN_CHECK(!masks.empty(), "a problem has at least one mask");
  LONGSPAN_CHECK(
      shape.columns % kStepKeys == 0 && 0 < shape.columns && shape.columns <= kMostSteps * kStepKeys,
      "tiles of {} keys: must be a multiple of {}, at most {}", shape.columns, kStepKeys,
      kMostSteps * kStepKeys);
  LONGSPAN_CHECK(0 < shape.rows && shape.rows <= kMostTileRows, "tiles of {} rows: must be 1 to 255",
                 shape.rows);
  map.rows_per_tile = shape.rows;
  map.row_tiles = static_cast<int32_t>((masks.front().rows() + shape.rows - 1) / shape.rows);
  map.entries.clear(), map.spans.clear();
  map.tiles = map.steps = 0;
  std::vector<std::vector<int32_t>> starts;
  if (row_tiles == RowTiles::kOfBlocks) {
    map.row_tiles = 0;
    for (const Mask& mask : masks) {
      starts.push_back(starts_of_blocks(mask, shape.rows));
      map.row_tiles = std::max(map.row_tiles, static_cast<int32_t>(starts.back().size()) - 1);
    }
  }
  std::vector<LoweringTask> tasks;
  std::vector<size_t> tasks_until;  // the end of each mask's tasks
  for (size_t m = 0; m < masks.size(); ++m) {
    const Mask& mask = masks[m];
    LONGSPAN_CHECK(mask.rows() == masks.front().rows(), "the masks of one problem differ in rows");
    const int32_t tiles = starts.empty() ? map.row_tiles : static_cast<int32_t>(starts[m].size()) - 1;
    add_tasks(mask, starts.empty() ? nullptr : &starts[m], shape, tiles, task_count(mask, tiles), tasks);
    tasks_until.push_back(tasks.size());
  }
  if (tasks.size() == 1) {
    Cover(tasks[0], shape, map).run();
  } else {
    map.work.clear();
    std::vector<ForwardMap> maps(tasks.size());
    parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t i, int) {
      Cover(tasks[static_cast<size_t>(i)], shape, maps[static_cast<size_t>(i)]).run();
    });
    size_t entries = 0, spans = 0;
    for (const ForwardMap& one : maps) entries += one.entries.size(), spans += one.spans.size();
    check_size(entries, spans);
    map.work.reserve(masks.size() * static_cast<size_t>(map.row_tiles));
    map.entries.reserve(entries);
    map.spans.reserve(spans);
    for (size_t m = 0, task = 0; m < masks.size(); ++m) {
      for (; task < tasks_until[m]; ++task) {
        append(map, maps[task]);
        maps[task] = ForwardMap();
      }
      map.work.resize((m + 1) * static_cast<size_t>(map.row_tiles));
    }
  }
  thread_local std::vector<MapRow> scratch;
  const auto count = static_cast<size_t>(map.row_tiles);
  for (size_t m = 0; m < masks.size(); ++m) order(std::span(map.work).subspan(m * count, count), scratch);
}

ForwardMap lower_forward(const HeadMasks& masks, TileShape shape, RowTiles row_tiles) {
  ForwardMap map;
  lower_forward(masks, shape, row_tiles, map);
  return map;
}

}  // namespace longspan::sm90
