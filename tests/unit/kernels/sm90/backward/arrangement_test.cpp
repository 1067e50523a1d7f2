// Whatever the shape, every tile is visited once for each query head. Additions in order find their turn when
// items are processed in the order in which they are taken. schedule_test has additions by time.
#include "kernels/sm90/backward/planner/arrangement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "mask/patterns/patterns.h"
#include "unit/kernels/sm90/drawn_problem.h"

namespace longspan::sm90 {
namespace {

Problem problem_of(std::string_view name, int64_t seqlen, bool deterministic) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:100:900";
  Problem problem = drawn_problem(name, options, 16, 2);
  problem.deterministic = deterministic;
  return problem;
}

// (key tile, row tile) of the map.
std::map<std::pair<int32_t, int32_t>, int> tiles_of(const CompiledMap& map, int32_t rows) {
  std::map<std::pair<int32_t, int32_t>, int> tiles;
  for (const WorkRow& row : map.work)
    for (int32_t r = 0; r < row.runs; ++r) {
      const DeviceRun& run = map.runs[row.first_run + static_cast<uint32_t>(r)];
      for (int32_t t = 0; t < std::max(run.code, 1); ++t) ++tiles[{row.row_tile, run.column / rows + t}];
    }
  return tiles;
}

void expect_all_once(const Problem& problem, const BackwardShape& any) {
  const BackwardArrangement all = arrange_backward(problem, any, 132);
  const BackwardShape& shape = all.shape;
  const BackwardItems& items = all.items;
  const auto wanted = tiles_of(lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned).map, shape.rows);
  const int32_t lists = problem.deterministic ? 1 : items.lists;  // the second has an order of its own
  for (int32_t list = 0; list < lists; ++list) {
    std::map<std::tuple<int32_t, int32_t, int32_t>, int> seen;  // query head, key tile, row tile
    std::map<int32_t, int> parts;
    std::map<std::pair<int32_t, int32_t>, int32_t> added;
    for (int32_t i = 0; i < items.per_list; ++i) {
      const BackwardWork& item = items.work[static_cast<size_t>(list * items.per_list + i)];
      if (item.heads == 0) continue;
      if (problem.deterministic) {
        EXPECT_EQ(item.part, parts[item.key_tile]++);
      }
      for (int32_t h = item.first_head; h < item.first_head + item.heads; ++h) {
        uint32_t walked = item.first_turn;
        for (int32_t r = 0; r < item.runs; ++r) {
          const bool down = !all.split.walk.descending;
          const DeviceRun& run =
              all.grid.map.runs[item.first_run + static_cast<uint32_t>(down ? r : item.runs - 1 - r)];
          const int32_t tiles = std::max(run.code, 1);
          for (int32_t t = 0; t < tiles; ++t) {
            const int32_t tile = run.column / shape.rows + (down ? t : tiles - 1 - t);
            ++seen[{h, item.key_tile, tile}];
            if (problem.deterministic && !all.split.by_time) {
              EXPECT_EQ(all.schedule.turns.at(walked++), (added[{h, tile}]++));
            }
          }
        }
      }
    }
    EXPECT_EQ(seen.size(), wanted.size() * static_cast<size_t>(problem.group_size()));
    for (const auto& [tile, count] : seen) {
      EXPECT_EQ(count, 1);
      EXPECT_TRUE(wanted.contains({std::get<1>(tile), std::get<2>(tile)}));
    }
  }
}

TEST(BackwardArrangement, VisitsEveryTileOnce) {
  for (const char* name : {"full", "causal", "full_document", "causal_document", "share_question",
                           "sliding_window", "prefix_lm_causal", "block_causal_document"})
    for (const bool deterministic : {false, true}) {
      SCOPED_TRACE(testing::Message() << name << (deterministic ? " ordered" : ""));
      const Problem problem = problem_of(name, 3072, deterministic);
      BackwardShape shape = choose_backward_shape(problem);
      expect_all_once(problem, shape);
      for (const KeyOrder order : {KeyOrder::kOfMap, KeyOrder::kFromLastKey, KeyOrder::kHeaviestFirst})
        for (const int32_t parts : {1, 2, 8})
          for (const int64_t most_tiles : {0, 40})
            for (const int32_t group_items : {0, 1, 20}) {
              if (deterministic && (group_items > 1 || (group_items == 0 && most_tiles > 0))) continue;
              SCOPED_TRACE(testing::Message() << "order " << static_cast<int>(order) << " parts " << parts
                                              << " tiles " << most_tiles << " groups " << group_items);
              shape.split = {.parts = parts,
                             .most_tiles = most_tiles,
                             .order = order,
                             .group_items = group_items,
                             .walk = {deterministic && parts == 2, deterministic}};
              expect_all_once(problem, shape);
            }
    }
}

// Of two tiles, with few and many items: fewer rounds of larger tiles, or less work beside the products.
TEST(BackwardArrangement, TakesTheTileWithWhichTheLastCtaEndsFirst) {
  const auto tile_of = [](const char* name, int64_t seqlen, int64_t heads_q, int64_t heads_kv,
                          int64_t head_dim, int64_t window = 0) {
    PatternOptions options;
    options.seqlen = seqlen;
    if (window > 0) options.values.set("window", TokenPair{window, {}});
    Problem problem = drawn_problem(name, options, heads_q, heads_kv);
    problem.head_dim = head_dim;
    const BackwardShape shape = choose_backward_shape(problem);
    EXPECT_TRUE(shape.any_tile);
    const BackwardShape taken = arrange_backward(problem, shape, 132).shape;
    EXPECT_FALSE(taken.any_tile);
    EXPECT_TRUE(taken.tile_shape() == shape.tile_shape() ||
                taken.tile_shape() == other_tile(shape).tile_shape());
    return taken.tile_shape();
  };
  const TileShape wide{192, 64}, square{128, 128}, tall{128, 80}, low{128, 64};  // low at head_dim 64, too
  EXPECT_EQ(tile_of("full", 3700, 20, 5, 64), square);  // 100 items of four heads would leave 32 SMs idle
  EXPECT_EQ(tile_of("full", 14900, 20, 5, 64), wide);
  EXPECT_EQ(tile_of("causal", 2900, 36, 4, 128), tall);
  EXPECT_EQ(tile_of("causal_blockwise", 13700, 24, 4, 128), tall);
  EXPECT_EQ(tile_of("sliding_window", 32768, 64, 8, 128), low);
  EXPECT_EQ(tile_of("sliding_window_causal", 1300, 12, 12, 64, 280), low);  // 84 items of 192 keys
  EXPECT_EQ(tile_of("sliding_window_causal", 21300, 48, 8, 64, 700), wide);
}

TEST(BackwardArrangement, FindsRowTilesThatOneKeyTileComesTo) {
  const auto of = [](const char* mask, const char* lengths) {
    PatternOptions options;
    options.seqlen = 3072;
    options.lengths = lengths;
    const Problem problem = drawn_problem(mask, options, 16, 2);
    return arrange_backward(problem, choose_backward_shape(problem), 132);
  };
  const BackwardArrangement all = of("causal_document", "uniform:100:400");
  std::map<int64_t, int> visits;
  for (const auto& [tile, count] : tiles_of(all.grid.map, 64)) visits[tile.second] += count;
  ASSERT_EQ(all.visited_once.size(), static_cast<size_t>(all.row_tiles));
  for (int64_t tile = 0; tile < all.row_tiles; ++tile)
    EXPECT_EQ(all.visited_once[static_cast<size_t>(tile)], visits[tile] == 1) << tile;
  EXPECT_GT(std::ranges::count(all.visited_once, 1), all.row_tiles / 3);
  EXPECT_TRUE(of("full_document", "uniform:1000:2000").visited_once.empty());
}

// Pass CTAs count the items that are done, so one that nobody works on would make them wait for ever.
TEST(BackwardArrangement, HasNoEmptyItemsThatPassCtasWouldWaitFor) {
  for (const char* mask : {"causal_document", "full_document", "prefix_lm_document", "share_question",
                           "causal_blockwise", "sliding_window_causal"})
    for (const int64_t seqlen : {8192, 20001}) {
      PatternOptions options;
      options.seqlen = seqlen;
      const Problem problem = drawn_problem(mask, options, 64, 8);
      BackwardShape shape = choose_backward_shape(problem);
      shape.any_tile = false;  // causal_blockwise has another one, in which no CTAs do passes
      const BackwardArrangement all = arrange_backward(problem, shape, 132);
      EXPECT_GT(all.pass_ctas, 0) << mask << " " << seqlen;
      for (const BackwardWork& item : all.items.work) EXPECT_GT(item.heads, 0) << mask << " " << seqlen;
    }
}

// What the launches of a pass, its workspace and its kernel depend on.
TEST(BackwardArrangement, MasksOfSameLaunchesDifferInNothingThatALaunchShows) {
  for (const bool deterministic : {false, true})
    for (const int64_t head_dim : {64, 128}) {
      std::optional<std::tuple<BackwardShape, int32_t, int32_t, int32_t, int32_t>> first;
      for (const std::string& name : pattern_names()) {
        SCOPED_TRACE(name);
        Problem problem = problem_of(name, 3072, deterministic);
        problem.head_dim = head_dim;
        problem.same_launches = true;
        BackwardShape shape = choose_backward_shape(problem);
        const BackwardArrangement all = arrange_backward(problem, shape, 132);
        shape.kind = BackwardKind::kLong;  // is for the planner alone
        const std::tuple now{shape, all.row_tiles, all.key_tiles, all.pass_ctas, all.schedule.streams};
        if (!first) first = now;
        EXPECT_TRUE(now == *first);
      }
    }
}

}  // namespace
}  // namespace longspan::sm90
