#include "mask/lowering/row_tile_costs.h"

#include <vector>

#include <gmock/gmock.h>

namespace longspan {
namespace {

Mask blocks(int64_t columns, const std::vector<std::pair<Range, Range>>& shown, int64_t rows) {
  std::vector<Band> bands;
  for (const auto& [q, k] : shown) bands.push_back({q, k, kUnboundedBelow, kUnboundedAbove});
  return Mask(rows, columns, bands);
}

TEST(RowTileCosts, CountsTheKeysOfEachRowTile) {
  // Blocks of 100 and 156 rows that see half and a quarter of the keys, in tiles of 64 rows.
  const Mask mask = blocks(400, {{{0, 100}, {0, 200}}, {{100, 256}, {100, 200}}}, 256);
  const RowTileCosts costs = row_tile_costs({mask}, 64);
  EXPECT_DOUBLE_EQ(costs.of_blocks, 2 * 200 + 3 * 100);
  EXPECT_DOUBLE_EQ(costs.even, 200 + 400 * (1 - 0.5 * 0.75) + 100 + 100);
}

TEST(RowTileCosts, CountsATileInManyBlocksOnceAndRowsThatSeeNothingNot) {
  const Mask mask = blocks(
      100, {{{0, 10}, {0, 50}}, {{10, 20}, {50, 100}}, {{30, 40}, {0, 50}}, {{192, 200}, {0, 100}}}, 300);
  const RowTileCosts costs = row_tile_costs({mask}, 64);
  EXPECT_DOUBLE_EQ(costs.of_blocks, 50 + 50 + 50 + 100);
  EXPECT_DOUBLE_EQ(costs.even, 100 * (1 - 0.125) + 100);
}

}  // namespace
}  // namespace longspan
