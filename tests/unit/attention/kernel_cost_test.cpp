#include "attention/kernel_cost.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

// Row tiles of 32 rows: 8 tokens of 4 heads.
KernelPassCost pass() {
  KernelPassCost cost;
  cost.tile_rows = 32;
  cost.tile_keys = 16;
  cost.most_pack = 4;
  cost.tile_s = 2;
  cost.row_tile_s = 5;
  cost.key_tile_s = 3;
  cost.launch_s = 7;
  return cost;
}

TEST(KernelCost, CountsTheTilesOfAFullMask) {
  const TileWork work = tile_work({Mask::window(64)}, 8, 2, pass());
  EXPECT_EQ(work.row_tiles, 8 * 2);  // of 8 tokens, for each of two groups of heads
  EXPECT_EQ(work.tiles, 8 * 2 * 4);
  EXPECT_EQ(work.longest, 4);
  EXPECT_EQ(work.key_tiles, 4 * 2);
}

TEST(KernelCost, CountsTilesThatAreVisibleInPart) {
  // Row tile i sees keys 0 to 8 i + 7: 1, 1, 2, 2, 3, 3, 4, 4 tiles.
  const TileWork work = tile_work({Mask::window(64, kUnboundedAbove, 0)}, 4, 1, pass());
  EXPECT_EQ(work.tiles, 20);
  EXPECT_EQ(work.row_tiles, 8);
  EXPECT_EQ(work.longest, 4);
}

TEST(KernelCost, ARowTileInTwoDocumentsVisitsTheKeysOfBoth) {
  const std::vector<int64_t> lengths{12, 52};
  const TileWork work = tile_work({Mask::documents(lengths)}, 4, 1, pass());
  // Row tile 0: 12 keys; 1: 12 and 52; 2 to 7: 52.
  EXPECT_EQ(work.tiles, 1 + 4 + 6 * 4);  // no row tile visits more than the 4 tiles of the mask
}

TEST(KernelCost, HeadsWithoutAGroupAreNotPacked) {
  const TileWork work = tile_work({Mask::window(64)}, 2, 2, pass());
  EXPECT_EQ(work.row_tiles, 2 * 2);  // of 32 tokens
}

TEST(KernelCost, EachHeadMayHaveAMask) {
  const HeadMasks masks{Mask::window(64), Mask::window(64, kUnboundedAbove, 0)};
  EXPECT_EQ(tile_work(masks, 8, 2, pass()).tiles, 32 + 20);
}

TEST(KernelCost, TheTimeIsThatOfTheTilesSharedByTheMultiprocessors) {
  const TileWork work = tile_work({Mask::window(64)}, 8, 2, pass());
  const double all = 64 * 2 + 16 * 5 + 8 * 3, longest = 4 * 2 + 5;
  EXPECT_DOUBLE_EQ(seconds_of(work, pass(), 4, 128), 7 + all / 4);
  EXPECT_DOUBLE_EQ(seconds_of(work, pass(), 4, 64), 7 + all / 4 / 2);
  EXPECT_DOUBLE_EQ(seconds_of(work, pass(), 1000, 128), 7 + longest);  // no faster than one row tile
  KernelPassCost tail = pass();
  tail.tail = 0.5;
  EXPECT_DOUBLE_EQ(seconds_of(work, tail, 4, 128), 7 + all / 4 + longest / 2);
}

TEST(KernelCost, AMaskThatShowsNothingTakesALaunch) {
  const Mask none(64, 64, std::vector<Band>{});
  EXPECT_DOUBLE_EQ(seconds_of(tile_work({none}, 8, 2, pass()), pass(), 4, 128), 7);
}

}  // namespace
}  // namespace longspan
