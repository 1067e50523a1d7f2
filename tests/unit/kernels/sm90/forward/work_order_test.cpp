#include "kernels/sm90/forward/planner/work_order.h"

#include <memory>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/forward/planner/lower.h"
#include "kernels/sm90/forward/planner/shape.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

TEST(WorkOrder, HandsOutEveryRowTileOfEveryUnitOnce) {
  for (const int32_t row_tiles : {1, 2, 7, 64})
    for (const int32_t units : {1, 2, 3, 8})
      for (int32_t section = 1; section <= units; ++section)
        for (const int32_t heavy : {0, 1, row_tiles / 2, row_tiles}) {
          const WorkOrder order{row_tiles, units, section, heavy};
          std::vector<int> seen(static_cast<size_t>(order.items()), 0);
          for (int32_t i = 0; i < order.items(); ++i) {
            const WorkPlace place = order.place(i);
            ASSERT_TRUE(0 <= place.unit && place.unit < units && 0 <= place.position &&
                        place.position < row_tiles);
            ++seen[static_cast<size_t>(place.unit * row_tiles + place.position)];
          }
          EXPECT_THAT(seen, testing::Each(1))
              << row_tiles << " row tiles, " << units << " units, sections of " << section << ", " << heavy
              << " heavy";
        }
}

TEST(WorkOrder, BeginsWithTheHeavyAndThenGoesSectionBySection) {
  const WorkOrder order{.row_tiles = 4, .units = 3, .section_units = 2, .heavy_rows = 1};
  std::vector<std::tuple<int, int>> places;
  for (int32_t i = 0; i < order.items(); ++i)
    places.emplace_back(order.place(i).unit, order.place(i).position);
  const std::vector<std::tuple<int, int>> expected = {{0, 0}, {1, 0}, {2, 0},  // the heavy one
                                                      {0, 1}, {1, 1}, {0, 2}, {1, 2}, {0, 3},
                                                      {1, 3}, {2, 1}, {2, 2}, {2, 3}};
  EXPECT_EQ(places, expected);
}

WorkOrder order_of(const char* pattern, int64_t seqlen) {
  PatternOptions options;
  options.seqlen = seqlen;
  Problem problem;
  problem.tokens_q = problem.tokens_kv = seqlen;
  problem.heads_q = 64;
  problem.heads_kv = 8;
  problem.head_dim = 128;
  problem.dtype = DType::kBF16;
  problem.masks = std::make_shared<const HeadMasks>(draw_mask(pattern, options).masks);
  Device h200;
  h200.units = 132;
  h200.cache_bytes = size_t{60} << 20;
  const ForwardShape shape = choose_forward_shape(problem);
  return choose_work_order(problem, shape, lower_forward(*problem.masks, shape.tile_shape(), shape.row_tiles),
                           h200);
}

TEST(WorkOrder, KeepsTheKeysOfASectionInTheCache) {
  EXPECT_EQ(order_of("full", 8192).section_units, 8);
  EXPECT_EQ(order_of("full", 16384).section_units, 4);
  EXPECT_EQ(order_of("full", 32768).section_units, 2);
  EXPECT_EQ(order_of("full", 131072).section_units, 1);
}

TEST(WorkOrder, BeginsWithRowTilesThatOthersWouldWaitFor) {
  for (const char* pattern : {"full", "causal", "causal_document", "sliding_window_causal"})
    EXPECT_EQ(order_of(pattern, 32768).heavy_rows, 0) << pattern;
  const int32_t of_last = order_of("causal_blockwise", 32768).heavy_rows;  // rows that see all keys
  EXPECT_GE(of_last, 2);
  EXPECT_LE(of_last, 10);
}

}  // namespace
}  // namespace longspan::sm90
