#include "kernels/sm90/forward/planner/row_tile_costs.h"

#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/forward/planner/lower.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

using testing::DoubleNear;

Mask blocks(int64_t columns, const std::vector<std::pair<Range, Range>>& shown, int64_t rows) {
  std::vector<Band> bands;
  for (const auto& [q, k] : shown) bands.push_back({q, k, kUnboundedBelow, kUnboundedAbove});
  return Mask(rows, columns, bands);
}

TEST(RowTileCosts, CountsTheKeysOfEachRowTile) {
  // Blocks of 100 and 156 rows that see half and a quarter of the keys, in tiles of 64 rows.
  const Mask mask = blocks(400, {{{0, 100}, {0, 200}}, {{100, 256}, {100, 200}}}, 256);
  const RowTileCosts costs = row_tile_costs(mask, 64);
  EXPECT_DOUBLE_EQ(costs.of_blocks, 2 * 200 + 3 * 100);
  EXPECT_DOUBLE_EQ(costs.even, 200 + 400 * (1 - 0.5 * 0.75) + 100 + 100);
}

TEST(RowTileCosts, CountsATileInManyBlocksOnceAndRowsThatSeeNothingNot) {
  const Mask mask = blocks(
      100, {{{0, 10}, {0, 50}}, {{10, 20}, {50, 100}}, {{30, 40}, {0, 50}}, {{192, 200}, {0, 100}}}, 300);
  const RowTileCosts costs = row_tile_costs(mask, 64);
  EXPECT_DOUBLE_EQ(costs.of_blocks, 50 + 50 + 50 + 100);
  EXPECT_DOUBLE_EQ(costs.even, 100 * (1 - 0.125) + 100);
}

TEST(RowTileCosts, AreNearWhatTheMapCounts) {
  for (const double density : {0.1, 0.5, 0.8}) {
    PatternOptions options;
    options.seqlen = 16384;
    options.values.set("block", 512).set("density", density);
    const HeadMasks masks = draw_mask("variable_block_sparse", options).masks;
    const RowTileCosts costs = row_tile_costs(masks.front(), 128);
    const TileShape shape{128, 160};
    const auto of_map = [&](RowTiles row_tiles) {
      return static_cast<double>(lower_forward(masks, shape, row_tiles).steps) * kStepKeys;
    };
    const double even = of_map(RowTiles::kEven), of_blocks = of_map(RowTiles::kOfBlocks);
    // The map also counts the rest of a tile, in both cases.
    EXPECT_THAT(costs.even / costs.of_blocks, DoubleNear(even / of_blocks, 0.04)) << density;
  }
}

}  // namespace
}  // namespace longspan::sm90
