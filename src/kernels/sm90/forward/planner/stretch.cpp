#include "kernels/sm90/forward/planner/stretch.h"

#include <algorithm>

namespace longspan::sm90 {

void StretchCover::cover(std::span<const Band> bands, int64_t first, std::span<MapRow> rows) {
  const int64_t height = shape_.rows;
  for (size_t i = 0; i < rows.size();) {
    const MapRow row = rows[i] = cover_alone(bands, first);
    first += height, ++i;
    if (i == rows.size() || !mark_.reached || row.entries > kMostCopied) continue;
    if (!others_stay(first - height)) continue;
    int64_t more = grow(first - height, row, rows.subspan(i));
    if (more == 0) more = slide(first - height, row, rows.subspan(i));
    first += more * height, i += static_cast<size_t>(more);
  }
  make_room(entries_.size());
}

void StretchCover::find_sides(std::span<const Band> bands, int64_t first) {
  const int64_t height = shape_.rows;
  for (size_t b = 0; b < bands.size(); ++b) {
    const Band& band = bands[b];
    Side side{band.k.begin, band.k.end, band.k.begin, band.k.end, &band};
    if (band.lo != kUnboundedBelow) {
      side.begin = std::max(side.begin, first + band.lo);
      side.all_begin = std::max(side.all_begin, first + height - 1 + band.lo);
    }
    if (band.hi != kUnboundedAbove) {
      side.end = std::min(side.end, first + height + band.hi);
      side.all_end = std::min(side.all_end, first + band.hi + 1);
    }
    size_t place = b;
    for (; place > 0 && side.begin < sides_[place - 1].begin; --place) sides_[place] = sides_[place - 1];
    sides_[place] = side;
  }
}

MapRow StretchCover::cover_alone(std::span<const Band> bands, int64_t first) {
  const size_t count = count_ = bands.size();
  const int64_t height = shape_.rows, width = shape_.columns;
  find_sides(bands, first);
  make_room(kEntryBatch);
  mark_.reached = false;
  const size_t row_first = out_.entries.size() + waiting_;
  int32_t of_row = 0;
  const auto write = [&](int64_t column, int32_t code) {
    make_room(1);
    entries_[waiting_++] = {static_cast<int32_t>(column), code};
    ++of_row;
  };
  int64_t full_column = 0, full_count = 0;  // full tiles that are not written yet
  const auto write_full = [&] {
    if (full_count > 0) write(full_column, static_cast<int32_t>(full_count));
    full_count = 0;
  };
  int64_t tiles = 0, steps = 0, covered = 0;
  bool have_clipped = false;
  for (size_t s = 0; s < count;) {
    const Side& side = sides_[s];
    if (side.end <= covered) {
      ++s;
      continue;
    }
    const int64_t column = std::max(covered, side.begin);
    if (s + 1 == count && !mark_.reached)
      mark_ = {true, column, of_row, full_column, full_count, tiles, steps};
    int64_t whole = side.all_begin <= column ? whole_tiles(side.all_end - column) : 0;
    const bool alone = s + 1 == count || sides_[s + 1].begin >= column + width;
    Layers layers;
    if (whole == 0 && alone) {
      const Band& band = *side.band;
      const int64_t begin = std::max<int64_t>(side.begin - column, 0),
                    end = std::min(side.end - column, width);
      const bool lo_cuts = band.lo != kUnboundedBelow && side.all_begin - column > begin,
                 hi_cuts = band.hi != kUnboundedAbove && side.all_end - column < end;
      layers = layers_.find(LayerTable::Lone(
          0, height, begin, end, lo_cuts ? static_cast<int32_t>(first + band.lo - column) : LayerTable::kNoLo,
          hi_cuts ? static_cast<int32_t>(first + band.hi - column) : LayerTable::kNoHi));
    } else if (whole == 0) {
      if (!have_clipped) {
        clipped_.clear();
        for (size_t b = 0; b < count; ++b) clipped_.push_back(clip(*sides_[b].band, {first, first + height}));
        have_clipped = true;
      }
      hits_.clear();
      for (size_t b = s; b < count && sides_[b].begin < column + width; ++b)
        if (sides_[b].end > column) hits_.push_back(&clipped_[b]);
      layers = layers_.find(hits_, column, shape_.rows);
      whole = layers.full ? 1 : 0;
    }
    if (whole > 0) {
      if (full_count > 0 && full_column + full_count * width == column) {
        full_count += whole;
      } else {
        write_full();
        full_column = column, full_count = whole;
      }
      tiles += whole;
      steps += whole * (width / kStepKeys);
      covered = column + whole * width;
      continue;
    }
    write_full();
    if (of_row % kEntryBatch == kEntryBatch - 1) write(0, 0);
    write(column, -1);
    write(layers.cut, layers.first);
    tiles += 1;
    steps += TileCut(layers.cut).steps();
    covered = column + width;
  }
  write_full();
  tiles_ = tiles, steps_ = steps;
  out_.tiles += tiles, out_.steps += steps;
  return {static_cast<int32_t>(first), static_cast<uint32_t>(row_first), of_row, cost_of(tiles, steps),
          static_cast<uint32_t>(height)};
}

const StretchCover::Tail& StretchCover::draw_tail(int64_t columns) {
  Tail& tail = tails_[static_cast<size_t>(columns)];
  const int64_t height = shape_.rows, width = shape_.columns;
  // The last row sees height - 1 columns more than the first.
  for (int64_t left = columns; left + height - 1 > 0; left -= width) {
    const int64_t end = std::min(left + height - 1, width);
    const Layers layers =
        layers_.find(LayerTable::Lone(0, height, 0, end, LayerTable::kNoLo,
                                      left < end ? static_cast<int32_t>(left - 1) : LayerTable::kNoHi));
    tail.cuts[static_cast<size_t>(tail.count++)] = {static_cast<int32_t>(layers.cut), layers.first};
    tail.steps += TileCut(layers.cut).steps();
  }
  return tail;
}

// Lowers row tiles of `rows` that see more of the last band, under its upper bound, than the one at `first`,
// and the same of all others. Returns their number.
int64_t StretchCover::grow(int64_t first, const MapRow& row, std::span<MapRow> rows) {
  const int64_t height = shape_.rows, width = shape_.columns;
  const Side& last = sides_[count_ - 1];
  const Band& band = *last.band;
  // The columns of the last band that the first row sees and no other band shows.
  const int64_t columns = last.all_end - mark_.column;
  if (band.hi == kUnboundedAbove || columns < 0 || height > width) return 0;
  auto count = static_cast<int64_t>(rows.size());
  count = std::min(count, (band.k.end - band.hi - height - first) / height);
  if (band.lo != kUnboundedBelow)
    count = std::min(count, (band.k.begin - band.lo - height + 1 - first) / height);
  if (count <= 0) return 0;

  std::array<MapEntry, kEntryBatch> same;
  const MapEntry* const of_row = entries_.data() + waiting_ - row.entries;
  auto same_count = static_cast<size_t>(std::copy_n(of_row, mark_.entries, same.begin()) - same.begin());
  int64_t full_column = mark_.column, full_count = 0;
  if (mark_.full_column + mark_.full_count * width == mark_.column && mark_.full_count > 0)
    full_column = mark_.full_column, full_count = mark_.full_count;
  else if (mark_.full_count > 0)
    same[same_count++] = {static_cast<int32_t>(mark_.full_column), static_cast<int32_t>(mark_.full_count)};

  // In registers: for all the compiler knows, a write to memory might change a member.
  const auto wide = static_cast<int32_t>(width), high = static_cast<int32_t>(height),
             steps_of_tile = wide / kStepKeys, fulls_before = static_cast<int32_t>(full_count),
             fulls_from = static_cast<int32_t>(full_column), tiles_before = static_cast<int32_t>(mark_.tiles),
             steps_before = static_cast<int32_t>(mark_.steps);
  auto whole = static_cast<int32_t>(columns / width), rest = static_cast<int32_t>(columns % width),
       column = static_cast<int32_t>(mark_.column) + whole * wide, first_row = static_cast<int32_t>(first);
  uint32_t first_entry = row.first_entry + static_cast<uint32_t>(row.entries);
  int64_t all_tiles = 0, all_steps = 0;
  for (MapRow& to_row : rows.first(static_cast<size_t>(count))) {
    rest += high;
    if (rest >= wide) rest -= wide, column += wide, ++whole;
    const Tail& tail = tail_of(rest);
    make_room(kEntryBatch);
    MapEntry* const begin = entries_.data() + waiting_;
    MapEntry* to = begin;
    for (size_t e = 0; e < same_count; ++e) *to++ = same[e];
    to[0] = {fulls_from, fulls_before + whole};
    to += fulls_before + whole > 0 ? 1 : 0;
    // There is room for two partial tiles; `count` of them are kept.
    to[0] = {column, -1}, to[1] = tail.cuts[0];
    to[2] = {column + wide, -1}, to[3] = tail.cuts[1];
    to += ptrdiff_t{2} * tail.count;
    const int32_t tiles = tiles_before + whole + tail.count,
                  steps = steps_before + whole * steps_of_tile + tail.steps;
    all_tiles += tiles, all_steps += steps;
    first_row += high;
    const auto entries = static_cast<int32_t>(to - begin);
    to_row = {first_row, first_entry, entries, cost_of(tiles, steps), static_cast<uint32_t>(high)};
    first_entry += static_cast<uint32_t>(entries);
    waiting_ += static_cast<size_t>(entries);
  }
  out_.tiles += all_tiles, out_.steps += all_steps;
  return count;
}

// Lowers row tiles of `rows` for which the last band has only moved to the right, and the others not at all.
// Returns their number.
int64_t StretchCover::slide(int64_t first, const MapRow& row, std::span<MapRow> rows) {
  const int64_t height = shape_.rows, width = shape_.columns;
  const Side& last = sides_[count_ - 1];
  const Band& band = *last.band;
  if (band.lo == kUnboundedBelow || band.hi == kUnboundedAbove) return 0;
  if (mark_.column != last.begin || first + band.lo < band.k.begin) return 0;
  const int64_t count =
      std::min(static_cast<int64_t>(rows.size()), (band.k.end - band.hi - height - first) / height);
  if (count <= 0) return 0;
  const bool full_waits = mark_.full_count > 0;
  if (full_waits && mark_.full_column + mark_.full_count * width == mark_.column) return 0;

  std::array<MapEntry, kEntryBatch> list;
  std::array<int32_t, kEntryBatch> moves;  // 0 or 1
  const MapEntry* const of_row = entries_.data() + waiting_ - row.entries;
  const int32_t same = mark_.entries + (full_waits ? 1 : 0), entries = row.entries;
  bool cut = false;  // the next entry holds a TileCut, not a column
  for (int32_t e = 0; e < entries; ++e) {
    list[static_cast<size_t>(e)] = of_row[e];
    moves[static_cast<size_t>(e)] = e >= same && !cut ? 1 : 0;
    cut = !cut && of_row[e].code < 0;
  }
  int32_t moved = 0;
  uint32_t first_entry = row.first_entry;
  const uint32_t cost = row.cost, tokens = row.rows;
  for (MapRow& to_row : rows.first(static_cast<size_t>(count))) {
    moved += static_cast<int32_t>(height);
    first_entry += static_cast<uint32_t>(entries);
    to_row = {row.first_row + moved, first_entry, entries, cost, tokens};
    make_room(kEntryBatch);
    MapEntry* const to = entries_.data() + waiting_;
    for (size_t e = 0; e < static_cast<size_t>(entries); ++e)
      to[e] = {list[e].column + moved * moves[e], list[e].code};
    waiting_ += static_cast<size_t>(entries);
  }
  out_.tiles += count * tiles_, out_.steps += count * steps_;
  return count;
}

}  // namespace longspan::sm90
