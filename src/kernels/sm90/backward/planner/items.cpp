#include "kernels/sm90/backward/planner/items.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "base/ceil_div.h"
#include "base/error.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

// The items of one mask, whose key tiles begin with number `first`.
class Lists {
 public:
  Lists(const BackwardSharing& sharing, const BackwardGrid& grid, size_t first,
        std::span<BackwardKeyTile> tiles)
      : sharing_(sharing), map_(grid.map), rows_(map_.work.data() + first, tiles.size()), tiles_(tiles) {
    heads_.reserve(rows_.size());
    for (const WorkRow& row : rows_) {
      const TileExtent& extent = grid.keys[first + row.row_tile];
      const int32_t parts = parts_of(row.tiles, sharing);
      tiles[row.row_tile] = {extent.first, extent.count, parts, 0};
      heads_.push_back(extent.count > 0 ? sharing.group / parts : 0);
      items_ += extent.count > 0 ? parts : 0;
    }
  }

  // All rows, some heads at a time.
  std::vector<BackwardWork> by_heads() const {
    std::vector<BackwardWork> list;
    list.reserve(items_);
    for (int32_t first = 0; first < sharing_.group;) {
      const int32_t left = sharing_.group - first;
      const bool last = left - sharing_.heads_at_once < sharing_.last_heads;
      const int32_t heads = last ? left : std::min(left, sharing_.heads_at_once);
      for (size_t i = 0; i < rows_.size(); ++i) append(list, i, first, heads);
      first += heads;
    }
    return list;
  }

  // Some rows at a time, head by head.
  std::vector<BackwardWork> by_groups() const {
    std::vector<BackwardWork> list;
    list.reserve(items_);
    for (size_t begin = 0, end = 0; begin < rows_.size(); begin = end) {
      for (int32_t items = 0; end < rows_.size() && items < sharing_.group_items; ++end)
        items += tiles_[rows_[end].row_tile].parts;
      for (int32_t head = 0; head < sharing_.group; ++head)
        for (size_t i = begin; i < end; ++i) append(list, i, head, 1);
    }
    return list;
  }

  // Document after document (key tiles that end with the same row tile), the heaviest first, so that L2 holds
  // their rows; then the light items of all, the heaviest first, so that all CTAs end at the same time.
  std::vector<BackwardWork> by_documents() const {
    std::vector<size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](size_t i) { return rows_[i].tiles / tiles_[rows_[i].row_tile].parts; });
    int64_t tiles = 0;
    for (const WorkRow& row : rows_) tiles += row.tiles;
    size_t light = order.size();  // where they begin
    for (double left = h200::backward::kLightShare * static_cast<double>(tiles); left > 0;)
      left -= rows_[order[--light]].tiles;
    std::vector<size_t> place(map_.end_of_column_tiles() + 1);  // of a document's heaviest item
    for (size_t at = light; at-- > 0;) place[map_.end_of(rows_[order[at]])] = at;
    std::ranges::stable_sort(std::span(order).first(light), {},
                             [&](size_t i) { return place[map_.end_of(rows_[i])]; });
    std::vector<BackwardWork> list;
    list.reserve(items_);
    for (const size_t i : order) append(list, i, 0, sharing_.group);
    return list;
  }

 private:
  // Appends the items of row i that begin with one of `count` heads from `first` on.
  void append(std::vector<BackwardWork>& list, size_t i, int32_t first, int32_t count) const {
    const int32_t heads = heads_[i];
    if (heads == 0) return;
    const WorkRow& row = rows_[i];
    const int32_t first_key = tiles_[row.row_tile].first;
    for (int32_t head = ceil_div(first, heads) * heads; head < first + count; head += heads)
      list.push_back({row.row_tile, row.first_run, row.runs, 0, first_key, head, heads, head / heads});
  }

  const BackwardSharing& sharing_;
  const CompiledMap& map_;
  std::span<const WorkRow> rows_;
  std::span<BackwardKeyTile> tiles_;
  std::vector<int32_t> heads_;  // of an item of the row; 0: the row has no items
  size_t items_ = 0;            // of all rows
};

}  // namespace

int32_t parts_of(int64_t tiles, const BackwardSharing& sharing) {
  if (tiles == 0) return 1;
  int32_t parts = sharing.parts;
  while (sharing.most_tiles > 0 && parts < sharing.group &&
         tiles * sharing.group > parts * sharing.most_tiles)
    do ++parts;
    while (sharing.group % parts != 0);
  return parts;
}

BackwardItems share_out(const BackwardGrid& grid, const BackwardSharing& sharing) {
  LONGSPAN_CHECK(sharing.parts > 0 && sharing.group % sharing.parts == 0,
                 "{} query heads cannot be split into {} items: it must be a divisor", sharing.group,
                 sharing.parts);
  const CompiledMap& map = grid.map;
  const size_t key_tiles = map.row_tiles;
  BackwardItems result;
  result.key_tiles.resize(map.work.size());
  std::vector<std::vector<BackwardWork>> all;
  for (size_t first = 0; first < map.work.size(); first += key_tiles) {
    const Lists lists(sharing, grid, first, {result.key_tiles.data() + first, key_tiles});
    if (sharing.group_items == 0) {
      all.push_back(lists.by_heads());
    } else {
      result.lists = 2;
      all.push_back(lists.by_groups());
      all.push_back(lists.by_documents());
    }
  }
  for (const BackwardKeyTile& tile : result.key_tiles) result.shared |= tile.parts > 1;
  // Masks that are split differently have different numbers of items. The lists are padded with items of no
  // heads.
  for (const auto& list : all) result.per_list = std::max(result.per_list, static_cast<int32_t>(list.size()));
  result.per_last = result.per_list;
  result.work.resize(all.size() * result.per_list);
  for (size_t i = 0; i < all.size(); ++i)
    std::ranges::copy(all[i], result.work.begin() + i * result.per_list);
  return result;
}

void cut_by_rows(CompiledMap& map, int32_t pieces, BackwardItems& items) {
  const BackwardItems whole = items;
  items.key_tiles.insert(items.key_tiles.end(), whole.key_tiles.begin(), whole.key_tiles.end());
  for (const BackwardWork& item : whole.work) {
    const auto tiles = static_cast<int32_t>(map.tiles(item.first_run, static_cast<size_t>(item.runs)));
    const int32_t of_item = std::clamp(tiles, 1, pieces);
    items.key_tiles[map.row_tiles + item.key_tile].parts = of_item * whole.key_tiles[item.key_tile].parts;
    for (int32_t piece = 0; piece < of_item; ++piece) {
      BackwardWork& cut = items.work.emplace_back(item);
      cut.part = item.part * of_item + piece;
      cut.first_run = static_cast<uint32_t>(map.runs.size());
      int32_t begin = tiles * piece / of_item, end = tiles * (piece + 1) / of_item;  // from this run on
      for (uint32_t r = 0; r < static_cast<uint32_t>(item.runs); ++r) {
        const DeviceRun run = map.runs[item.first_run + r];
        const int32_t from = std::max(begin, 0), to = std::min(end, tiles_of(run));
        const int32_t column = run.column + from * map.columns_per_tile;
        if (from < to) map.runs.push_back({column, run.code < 0 ? run.code : to - from});
        begin -= tiles_of(run), end -= tiles_of(run);
      }
      cut.runs = static_cast<int32_t>(map.runs.size() - cut.first_run);
    }
  }
  items.lists = 2;
  items.per_last = static_cast<int32_t>(items.work.size()) - items.per_list;
}

}  // namespace longspan::sm90
