// Every key tile is processed once for each query head, whatever the order.
#include "kernels/sm90/backward/planner/items.h"

#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>

#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

constexpr TileShape kShape{128, 64};

BackwardGrid grid_of(std::string_view name, int64_t seqlen, int64_t kv_heads = 1,
                     std::string_view lengths = {}) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = kv_heads;
  if (!lengths.empty()) options.lengths = lengths;
  return lay_tiles(draw_mask(name, options).masks, kShape, true);
}

void expect_all_once(const BackwardGrid& grid, const BackwardSharing& sharing) {
  const BackwardItems items = share_out(grid, sharing);
  const auto key_tiles = static_cast<size_t>(grid.map.row_tiles);
  const size_t masks = grid.map.work.size() / key_tiles;
  ASSERT_EQ(items.work.size(), masks * static_cast<size_t>(items.lists * items.per_list));
  ASSERT_EQ(items.key_tiles.size(), grid.map.work.size());
  for (size_t list = 0; list < masks * static_cast<size_t>(items.lists); ++list) {
    const size_t mask = list / static_cast<size_t>(items.lists);
    std::map<std::pair<int32_t, int32_t>, int> seen;  // key tile, head
    std::map<int32_t, std::set<int32_t>> parts;
    for (size_t i = 0; i < static_cast<size_t>(items.per_list); ++i) {
      const BackwardWork& work = items.work[list * static_cast<size_t>(items.per_list) + i];
      if (work.heads == 0) continue;
      EXPECT_EQ(work.first_key, items.key_tiles[mask * key_tiles + static_cast<size_t>(work.key_tile)].first);
      parts[work.key_tile].insert(work.part);
      for (int32_t h = 0; h < work.heads; ++h) ++seen[{work.key_tile, work.first_head + h}];
    }
    size_t with_keys = 0;
    for (size_t tile = 0; tile < key_tiles; ++tile)
      with_keys += items.key_tiles[mask * key_tiles + tile].count > 0;
    EXPECT_EQ(seen.size(), with_keys * static_cast<size_t>(sharing.group));
    for (const auto& [what, times] : seen) EXPECT_EQ(times, 1);
    for (const auto& [tile, numbers] : parts) {
      EXPECT_EQ(static_cast<int32_t>(numbers.size()),
                items.key_tiles[mask * key_tiles + static_cast<size_t>(tile)].parts);
      EXPECT_EQ(*numbers.rbegin() + 1, static_cast<int32_t>(numbers.size()));
    }
  }
}

TEST(BackwardItems, CoverEveryKeyTileAndHeadOnce) {
  const BackwardGrid documents = grid_of("causal_document", 5000), causal = grid_of("causal", 4000);
  const BackwardGrid blocks = grid_of("uniform_block_sparse", 4096, 3);
  const BackwardGrid variable = grid_of("variable_block_sparse", 8192, 3);
  for (const BackwardGrid* grid : {&documents, &causal, &blocks, &variable})
    for (const int32_t group : {1, 3, 8, 12}) {
      expect_all_once(*grid, {.group = group, .parts = 1});
      expect_all_once(*grid, {.group = group, .parts = group});
      expect_all_once(*grid, {.group = group, .parts = group, .heads_at_once = 8, .last_heads = 3});
      for (const int32_t group_items : {1, 132})
        expect_all_once(*grid, {.group = group, .most_tiles = 40, .group_items = group_items});
    }
}

TEST(BackwardItems, SplitsTheLongOnesAlone) {
  const BackwardGrid grid = grid_of("share_question", 16384);
  const BackwardItems items = share_out(grid, {.group = 8, .most_tiles = 160, .group_items = 132});
  EXPECT_EQ(items.key_tiles.front().parts, 8);  // of a question that all answers see
  EXPECT_TRUE(items.shared);
  std::set<int32_t> parts;
  for (const BackwardKeyTile& tile : items.key_tiles) parts.insert(tile.parts);
  EXPECT_GT(parts.size(), 1u);
}

// CTAs that work at the same time then find the same rows in L2, and light items fill the gaps at the end.
TEST(BackwardItems, OfTheLastSectionKeepDocumentsTogetherUntilOnlyLightOnesAreLeft) {
  const BackwardGrid grid = grid_of("causal_document", 20000, 1, "uniform:300:3000");
  const BackwardItems items = share_out(grid, {.group = 4, .most_tiles = 160, .group_items = 132});
  ASSERT_EQ(items.lists, 2);
  std::map<int32_t, WorkRow> row_of;  // by key tile
  for (const WorkRow& row : grid.map.work) row_of[row.row_tile] = row;
  const auto last = std::span(items.work).subspan(static_cast<size_t>(items.per_list));
  const auto tiles_of_item = [&](size_t i) {
    return row_of[last[i].key_tile].tiles / items.key_tiles[static_cast<size_t>(last[i].key_tile)].parts;
  };
  // The longest stretch at the end whose items never become heavier.
  size_t light = last.size() - 1;
  while (light > 0 && tiles_of_item(light - 1) >= tiles_of_item(light)) --light;
  double tiles = 0, light_tiles = 0;
  for (size_t i = 0; i < last.size(); ++i) {
    tiles += tiles_of_item(i) * last[i].heads;
    if (i >= light) light_tiles += tiles_of_item(i) * last[i].heads;
  }
  EXPECT_GE(light_tiles, 0.2 * tiles);
  EXPECT_LE(light_tiles, 0.5 * tiles);
  std::set<int32_t> begun;  // documents, by the row tile that they end with
  int32_t before = -1;
  for (size_t i = 0; i < light; ++i) {
    const int32_t document = grid.map.end_of(row_of[last[i].key_tile]);
    if (document != before) {
      EXPECT_TRUE(begun.insert(document).second) << "item " << i << " returns to a document";
    }
    before = document;
  }
  EXPECT_GT(begun.size(), 1u);
}

// Of an item: (key tile, head, row tile) and how often it is visited.
std::map<std::tuple<int32_t, int32_t, int32_t>, int> visits_of(const CompiledMap& map,
                                                               std::span<const BackwardWork> items) {
  std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;
  for (const BackwardWork& item : items)
    for (int32_t h = item.first_head; h < item.first_head + item.heads; ++h)
      for (uint32_t r = item.first_run; r < item.first_run + static_cast<uint32_t>(item.runs); ++r)
        for (int32_t t = 0; t < tiles_of(map.runs[r]); ++t)
          ++seen[{item.key_tile, h, map.first_tile(map.runs[r]) + t}];
  return seen;
}

TEST(BackwardItems, OfTheLastHeadsAreCutByRows) {
  for (const char* name : {"full", "causal", "global_sliding_window", "causal_document", "share_question"})
    for (const int32_t parts : {1, 4})
      for (const int32_t pieces : {2, 3, 8}) {
        SCOPED_TRACE(testing::Message() << name << " parts " << parts << " pieces " << pieces);
        BackwardGrid grid = grid_of(name, 3000);
        BackwardItems items = share_out(grid, {.group = 4, .parts = parts});
        EXPECT_EQ(items.per_last, items.per_list);
        cut_by_rows(grid.map, pieces, items);
        ASSERT_EQ(items.work.size(), static_cast<size_t>(items.per_list + items.per_last));
        const auto whole = std::span(items.work).first(static_cast<size_t>(items.per_list)),
                   cut = std::span(items.work).subspan(whole.size());
        EXPECT_EQ(visits_of(grid.map, cut), visits_of(grid.map, whole));
        const auto of_list = std::span(items.key_tiles).subspan(items.key_tiles.size() / 2);
        std::map<int32_t, std::set<int32_t>> numbers;
        for (const BackwardWork& item : cut) {
          EXPECT_TRUE(numbers[item.key_tile].insert(item.part).second);
          EXPECT_EQ(item.first_key, of_list[static_cast<size_t>(item.key_tile)].first);
        }
        for (const auto& [tile, set] : numbers) {
          EXPECT_EQ(of_list[static_cast<size_t>(tile)].parts, static_cast<int32_t>(set.size()));
          EXPECT_EQ(*set.rbegin() + 1, static_cast<int32_t>(set.size()));
        }
        EXPECT_GT(items.per_last, items.per_list);
      }
}

}  // namespace
}  // namespace longspan::sm90
