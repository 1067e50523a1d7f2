#include <memory>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/forward/planner/shape.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

TEST(WorkOrder, HandsOutEveryRowTileOfEveryUnitOnce) {
  for (const int32_t row_tiles : {1, 2, 7, 64})
    for (const int32_t units : {1, 2, 3, 8})
      for (int32_t section = 1; section <= units; ++section)
        for (const int32_t heavy : {0, 1, row_tiles / 2, row_tiles})
          for (int32_t late = 0; late <= units; ++late) {
            const WorkOrder order{row_tiles, units, section, heavy, late};
            std::vector<int> seen(static_cast<size_t>(order.items()), 0);
            for (int32_t i = 0; i < order.items(); ++i) {
              const WorkPlace place = order.place(i);
              ASSERT_TRUE(0 <= place.unit && place.unit < units && 0 <= place.position &&
                          place.position < row_tiles);
              ++seen[static_cast<size_t>(place.unit * row_tiles + place.position)];
            }
            EXPECT_THAT(seen, testing::Each(1))
                << row_tiles << " row tiles, " << units << " units, sections of " << section << ", " << heavy
                << " heavy of the last " << late;
          }
}

TEST(WorkOrder, BeginsWithTheHeavyOfTheLastSectionsAndThenGoesSectionBySection) {
  const WorkOrder order{.row_tiles = 3, .units = 5, .section_units = 2, .heavy_rows = 1, .late_units = 3};
  std::vector<std::tuple<int, int>> places;
  for (int32_t i = 0; i < order.items(); ++i)
    places.emplace_back(order.place(i).unit, order.place(i).position);
  const std::vector<std::tuple<int, int>> expected = {
      {2, 0}, {3, 0}, {4, 0},                          // the heavy ones
      {0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2},  // the first section
      {2, 1}, {3, 1}, {2, 2}, {3, 2}, {4, 1}, {4, 2}};
  EXPECT_EQ(places, expected);
}

// In tiles of `given`, or those that the planner chooses.
WorkOrder order_of(const char* pattern, int64_t seqlen, int64_t heads_q = 64, int64_t heads_kv = 8,
                   const ForwardShape* given = nullptr) {
  PatternOptions options;
  options.seqlen = seqlen;
  Problem problem;
  problem.tokens_q = problem.tokens_kv = seqlen;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.head_dim = 128;
  problem.dtype = DType::kBF16;
  problem.masks = std::make_shared<const HeadMasks>(draw_mask(pattern, options).masks);
  Device h200;
  h200.units = 132;
  h200.cache_bytes = size_t{60} << 20;
  const ForwardShape shape = given != nullptr ? *given : choose_forward_shape(problem, h200);
  return choose_work_order(problem, shape, lower_forward(*problem.masks, shape.tile_shape(), shape.row_tiles),
                           h200);
}

TEST(WorkOrder, KeepsTheKeysOfASectionInTheCache) {
  EXPECT_EQ(order_of("causal", 8192).section_units, 8);
  EXPECT_EQ(order_of("causal", 16384).section_units, 4);
  EXPECT_EQ(order_of("causal", 32768).section_units, 2);
  EXPECT_EQ(order_of("causal", 131072).section_units, 1);
}

// One, but all if they are short.
TEST(WorkOrder, TakesOneKvHeadAtATimeIfAllRowsSeeTheSameKeys) {
  EXPECT_EQ(order_of("full", 2048).section_units, 8);
  EXPECT_EQ(order_of("full", 2048, 16, 16).section_units, 1);
  for (const int64_t seqlen : {3000, 8192, 32768}) {
    EXPECT_EQ(order_of("full", seqlen).section_units, 1) << seqlen;  // eight query heads in a row tile
    EXPECT_EQ(order_of("full", seqlen, 40, 8).section_units, 5)
        << seqlen;  // five row tiles of one query head
    EXPECT_EQ(order_of("full", seqlen, 16, 16).heavy_rows, 0)
        << seqlen;  // though each takes longer than a section
  }
}

TEST(WorkOrder, BeginsWithRowTilesThatOthersWouldWaitFor) {
  for (const char* pattern : {"full", "causal", "causal_document", "sliding_window_causal"})
    EXPECT_EQ(order_of(pattern, 32768).heavy_rows, 0) << pattern;
  const WorkOrder order = order_of("causal_blockwise", 32768);
  EXPECT_GE(order.heavy_rows, 2);  // rows that see all keys
  EXPECT_LE(order.heavy_rows, 10);
  EXPECT_EQ(order.late_units, 6);  // such a row tile takes 0.54 of the time of all eight
}

TEST(WorkOrder, LeavesHeavyRowTilesInTheirSectionsUnlessTheyWouldEndLast) {
  // They would read K and V of all heads again and again.
  const ForwardShape of_documents{.row_tiles = RowTiles::kOfBlocks};
  for (const int64_t seqlen : {8192, 16384, 32768}) {
    const WorkOrder order = order_of("causal_document", seqlen, 64, 64, &of_documents);
    EXPECT_GT(order.heavy_rows, 0) << seqlen;
    EXPECT_LE(order.late_units, 8) << seqlen;
    EXPECT_EQ(order.late_units % order.section_units, 0) << seqlen;
  }
  const WorkOrder order = order_of("causal_blockwise", 32768, 16, 16);  // one takes nearly all the time
  EXPECT_EQ(order.late_units, 16);
}

}  // namespace
}  // namespace longspan::sm90
