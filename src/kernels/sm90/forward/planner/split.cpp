#include "kernels/sm90/forward/planner/split.h"

#include <algorithm>

#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::forward;

// The cost of a split in tiles: an item's beginning and end, and writing and reading all partial results at
// about the same time. It fits measurements on an H200 with 102, 94 and 16 parts: 2K +3.2 % cycles, 4K -1.5
// %, 8K -2.7 % (docs/lab/2026-11-sm90-forward.md, version 14).
int64_t overhead_of(int64_t parts) {
  return tuned::kSplitItemCost + parts / tuned::kSplitPartsOfOneTile;
}

// The number of shares that the tiles of the last wave are cut into, at most one a worker.
int64_t shares_of(int64_t last, int64_t tiles, int64_t workers) {
  const int64_t shortest =
      std::max(tuned::kSplitMinTilesOfShare, (tiles + tuned::kSplitMaxParts - 1) / tuned::kSplitMaxParts);
  return std::min(workers, last * tiles / shortest);
}

struct Tile {
  MapEntry entry;  // of one tile
  MapEntry cut;    // if entry.code < 0
};

std::vector<Tile> tiles_of(const ForwardMap& map, const MapRow& row) {
  std::vector<Tile> tiles;
  for (int32_t i = 0; i < row.entries; ++i) {
    const MapEntry& entry = map.entries[row.first_entry + static_cast<uint32_t>(i)];
    if (entry.code < 0) {
      tiles.push_back({entry, map.entries[row.first_entry + static_cast<uint32_t>(++i)]});
      continue;
    }
    for (int32_t t = 0; t < entry.code; ++t) tiles.push_back({{entry.column, t}, {}});
  }
  return tiles;
}

}  // namespace

double time_saved_by_split(int64_t items, int64_t tiles, int64_t workers) {
  const int64_t last = workers > 0 ? items % workers : 0;
  const int64_t shares = shares_of(last, tiles, workers);
  if (shares <= last) return 0;
  const int64_t longest = (last * tiles + shares - 1) / shares;
  const int64_t tiles_spared = tiles - longest - overhead_of(last + shares);
  const int64_t waves = items / workers + 1;
  const double spared = static_cast<double>(tiles_spared) / static_cast<double>(waves * tiles);
  return spared >= tuned::kSplitMinSaving ? spared : 0;
}

ForwardSplit split_last_wave(const ForwardMap& map, const WorkOrder& order, int32_t columns,
                             int32_t workers) {
  ForwardSplit split;
  split.whole_items = order.items();
  if (map.work.empty()) return split;
  // Unequal items even out, since the heaviest come first.
  for (const MapRow& row : map.work)
    if (row.cost != map.work.front().cost) return split;
  const auto masks = static_cast<int32_t>(map.work.size()) / std::max(map.row_tiles, 1);
  const auto row_of = [&](const WorkPlace& place) {
    const int64_t mask = masks > 1 ? int64_t{place.unit} * masks / order.units : 0;
    return map.work[static_cast<size_t>(mask * map.row_tiles + place.position)];
  };
  const auto tiles = static_cast<int64_t>(tiles_of(map, map.work.front()).size());
  for (int32_t m = 1; m < masks; ++m)
    if (static_cast<int64_t>(tiles_of(map, map.work[static_cast<size_t>(m) * map.row_tiles]).size()) != tiles)
      return split;

  if (time_saved_by_split(order.items(), tiles, workers) == 0) return split;

  // All tiles of the last wave in a row, cut into shares.
  const int32_t last = order.items() % workers;
  const int64_t all = last * tiles, shares = shares_of(last, tiles, workers);
  split.whole_items -= last;
  int64_t share_number = 1;
  for (int32_t item = 0; item < last; ++item) {
    const int64_t begin = item * tiles, end = begin + tiles;
    std::vector<int64_t> cuts = {begin};
    for (; share_number < shares && share_number * all / shares < end; ++share_number) {
      const int64_t cut = (share_number * all + shares / 2) / shares;
      if (cut - cuts.back() >= tuned::kSplitMinTilesOfPart && end - cut >= tuned::kSplitMinTilesOfPart)
        cuts.push_back(cut);
    }
    cuts.push_back(end);
    const WorkPlace place = order.place(split.whole_items + item);
    const MapRow row = row_of(place);
    const std::vector<Tile> of_item = tiles_of(map, row);
    const auto parts = static_cast<int32_t>(cuts.size()) - 1;
    for (int32_t p = 0; p < parts; ++p) {
      ItemPart part{row, place.unit, p, parts, split.slots};
      part.row.first_entry = static_cast<uint32_t>(split.entries.size());
      int64_t cost = 0;
      std::vector<MapEntry> entries;
      for (int64_t t = cuts[static_cast<size_t>(p)] - begin; t < cuts[static_cast<size_t>(p) + 1] - begin;
           ++t) {
        const Tile& tile = of_item[static_cast<size_t>(t)];
        if (tile.entry.code < 0) {
          if (entries.size() % kEntryBatch == kEntryBatch - 1) entries.push_back({});
          entries.push_back(tile.entry);
          entries.push_back(tile.cut);
          cost += TileCut(static_cast<uint32_t>(tile.cut.column)).steps() + 2;
          continue;
        }
        const int32_t column = tile.entry.column + tile.entry.code * columns;
        if (!entries.empty() && entries.back().code > 0 &&
            (entries.size() < 2 || entries[entries.size() - 2].code >= 0) &&
            entries.back().column + entries.back().code * columns == column)
          ++entries.back().code;
        else
          entries.push_back({column, 1});
        cost += columns / kStepKeys + 2;
      }
      part.row.entries = static_cast<int32_t>(entries.size());
      part.row.cost = static_cast<uint32_t>(std::min<int64_t>(cost, (1 << 24) - 1));
      split.entries.insert(split.entries.end(), entries.begin(), entries.end());
      split.parts.push_back(part);
    }
    if (parts > 1) split.slots += parts;
  }
  const auto heavier = [](const ItemPart& a, const ItemPart& b) { return a.row.cost > b.row.cost; };
  std::stable_sort(split.parts.begin(), split.parts.end(), heavier);
  // Workers with a light first part take a second one.
  if (split.parts.size() > static_cast<size_t>(workers))
    std::reverse(split.parts.begin(), split.parts.begin() + workers);
  return split;
}

}  // namespace longspan::sm90
