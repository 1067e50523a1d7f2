#include "kernels/sm90/forward/planner/stretch.h"

#include <algorithm>

namespace longspan::sm90 {

int64_t Stretch::follow(const LoweredRow& one, std::span<const ClippedBand> bands, std::span<MapRow> rows) {
  if (one.last_column < 0 || one.row.entries > kMostCopied) return 0;
  const auto stays = [](const ClippedBand& band) {  // shows the same of all row tiles from this one on
    return band.lo == kUnboundedBelow && (band.hi == kUnboundedAbove || band.hi + 1 >= band.k_end);
  };
  if (!std::all_of(bands.begin(), bands.end() - 1, stays)) return 0;
  const int64_t grown = grow(one, bands.back(), rows);
  return grown > 0 ? grown : slide(one, bands.back(), rows);
}

const Stretch::Tail& Stretch::draw_tail(int64_t columns) {
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

// Row tiles that see more of the last band, under its upper bound, and the same of all others.
int64_t Stretch::grow(const LoweredRow& one, const ClippedBand& last, std::span<MapRow> rows) {
  const int64_t height = shape_.rows, width = shape_.columns;
  // The columns of the last band that the first row sees and no other band shows.
  const int64_t columns = last.all_end - one.last_column;
  if (last.hi == kUnboundedAbove || columns < 0 || height > width) return 0;
  auto count = static_cast<int64_t>(rows.size());
  count = std::min(count, (last.k_end - last.hi - height) / height);
  if (last.lo != kUnboundedBelow) count = std::min(count, (last.k_begin - last.lo - height + 1) / height);
  if (count <= 0) return 0;

  std::array<MapEntry, kEntryBatch> same;
  auto same_count = static_cast<size_t>(
      std::copy_n(out_.entries.end() - one.row.entries, one.entries_before, same.begin()) - same.begin());
  MapEntry fulls{static_cast<int32_t>(one.last_column), 0};
  if (one.full.column + int64_t{one.full.code} * width == one.last_column && one.full.code > 0)
    fulls = one.full;
  else if (one.full.code > 0)
    same[same_count++] = one.full;

  // In registers: for all the compiler knows, a write to memory might change a member.
  const auto wide = static_cast<int32_t>(width), high = static_cast<int32_t>(height),
             steps_of_tile = wide / kStepKeys, tiles_before = static_cast<int32_t>(one.tiles_before),
             steps_before = static_cast<int32_t>(one.steps_before);
  auto whole = static_cast<int32_t>(columns / width), rest = static_cast<int32_t>(columns % width),
       column = static_cast<int32_t>(one.last_column) + whole * wide, first_row = one.row.first_row;
  uint32_t first_entry = one.row.first_entry + static_cast<uint32_t>(one.row.entries);
  int64_t all_tiles = 0, all_steps = 0;
  const size_t most_entries = same_count + 5;  // full tiles and two partial ones
  const size_t before = out_.entries.size();
  out_.entries.resize(before + static_cast<size_t>(count) * most_entries);
  MapEntry* to = out_.entries.data() + before;
  for (MapRow& to_row : rows.first(static_cast<size_t>(count))) {
    rest += high;
    if (rest >= wide) rest -= wide, column += wide, ++whole;
    const Tail& tail = tail_of(rest);
    MapEntry* const begin = to;
    for (size_t e = 0; e < same_count; ++e) *to++ = same[e];
    to[0] = {fulls.column, fulls.code + whole};
    to += fulls.code + whole > 0 ? 1 : 0;
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
  }
  out_.entries.resize(static_cast<size_t>(to - out_.entries.data()));
  out_.tiles += all_tiles, out_.steps += all_steps;
  return count;
}

// Row tiles for which the last band has only moved to the right, and the others not at all.
int64_t Stretch::slide(const LoweredRow& one, const ClippedBand& last, std::span<MapRow> rows) {
  const int64_t height = shape_.rows, width = shape_.columns;
  if (last.lo == kUnboundedBelow || last.hi == kUnboundedAbove) return 0;
  if (one.last_column != last.begin || last.lo < last.k_begin) return 0;
  const int64_t count = std::min(static_cast<int64_t>(rows.size()), (last.k_end - last.hi - height) / height);
  if (count <= 0) return 0;
  const bool full_before = one.full.code > 0;
  if (full_before && one.full.column + int64_t{one.full.code} * width == one.last_column) return 0;

  std::array<MapEntry, kEntryBatch> list;
  std::array<int32_t, kEntryBatch> moves;  // 0 or 1
  const MapRow row = one.row;
  std::copy_n(out_.entries.end() - row.entries, row.entries, list.begin());
  const int32_t same = one.entries_before + (full_before ? 1 : 0);
  bool cut = false;  // the next entry holds a TileCut, not a column
  for (int32_t e = 0; e < row.entries; ++e) {
    moves[static_cast<size_t>(e)] = e >= same && !cut ? 1 : 0;
    cut = !cut && list[static_cast<size_t>(e)].code < 0;
  }
  const auto entries = static_cast<size_t>(row.entries);
  uint32_t first_entry = row.first_entry + static_cast<uint32_t>(entries);
  const size_t before = out_.entries.size();
  out_.entries.resize(before + static_cast<size_t>(count) * entries);
  MapEntry* to = out_.entries.data() + before;
  int32_t moved = 0;
  for (MapRow& to_row : rows.first(static_cast<size_t>(count))) {
    moved += static_cast<int32_t>(height);
    to_row = {row.first_row + moved, first_entry, row.entries, row.cost, row.rows};
    for (size_t e = 0; e < entries; ++e) *to++ = {list[e].column + moved * moves[e], list[e].code};
    first_entry += static_cast<uint32_t>(entries);
  }
  out_.tiles += count * one.tiles, out_.steps += count * one.steps;
  return count;
}

}  // namespace longspan::sm90
