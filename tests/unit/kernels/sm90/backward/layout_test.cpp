// The layout of the backward kernel's sums holds every element of a tile once.
#include "kernels/sm90/backward/layout.h"

#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {
namespace {

constexpr int32_t kKeys = 128;

TEST(BackwardLayout, HoldsEveryElementOfDqOnce) {
  for (const int32_t head_dim : {64, 128}) {
    std::vector<int> seen(static_cast<size_t>(64 * head_dim), 0);
    for (int32_t group = 0; group < 64 * head_dim / 4; ++group)
      for (int32_t c = 0; c < 4; ++c) {
        const DqElement at = dq_element(group, c, 64);
        ASSERT_TRUE(0 <= at.row && at.row < 64 && 0 <= at.d && at.d < head_dim) << group;
        ++seen[static_cast<size_t>(at.row * head_dim + at.d)];
      }
    EXPECT_THAT(seen, testing::Each(1)) << "head_dim " << head_dim;
  }
}

TEST(BackwardLayout, HoldsEveryColumnOfAHalfRowOnce) {
  for (const int32_t width : {32, 64})
    for (const int32_t row : {0, 1}) {
      std::vector<int> places(static_cast<size_t>(width / 4), 0), seen(static_cast<size_t>(width), 0);
      for (int32_t chunk = 0; chunk < width / 4; ++chunk) {
        const int32_t place = dq_chunk_place(row, chunk);
        EXPECT_EQ(dq_chunk_place(row, place), chunk);
        ++places.at(static_cast<size_t>(place));
        for (int32_t c = 0; c < 4; ++c) ++seen.at(static_cast<size_t>(dq_chunk_column(chunk, c)));
      }
      EXPECT_THAT(places, testing::Each(1));
      EXPECT_THAT(seen, testing::Each(1));
    }
}

TEST(BackwardLayout, HasAPlaceForEachRowsStats) {
  for (const int32_t rows : {16, 64, 80}) {
    std::vector<int> seen(static_cast<size_t>(rows), 0);
    for (int32_t row = 0; row < rows; ++row) ++seen.at(static_cast<size_t>(stats_index(row)));
    EXPECT_THAT(seen, testing::Each(1));
  }
  // The first thread of a quad has rows 0, 1, 8 and 9 side by side.
  EXPECT_EQ(stats_index(0), 0);
  EXPECT_EQ(stats_index(1), 1);
  EXPECT_EQ(stats_index(8), 2);
  EXPECT_EQ(stats_index(9), 3);
  EXPECT_EQ(stats_index(2), 4);
  EXPECT_EQ(stats_index(16), 16);
}

// Accumulators of wgmma: two neighbouring columns, then the same of eight rows further down.
TEST(BackwardLayout, FollowsTheAccumulatorsOfAWarpgroup) {
  const auto dq = [](int32_t group, int32_t c) {
    const DqElement at = dq_element(group, c, 64);
    return std::pair(at.d, at.row);
  };
  EXPECT_EQ(dq(0, 0), std::pair(0, 0));
  EXPECT_EQ(dq(0, 1), std::pair(0, 1));
  EXPECT_EQ(dq(0, 2), std::pair(8, 0));
  EXPECT_EQ(dq(1, 0), std::pair(0, 2));            // the next thread of a quad
  EXPECT_EQ(dq(4, 0), std::pair(1, 0));            // the next quad
  EXPECT_EQ(dq(32, 0), std::pair(0, 8));           // the next 8 columns
  EXPECT_EQ(dq(32 * 8, 0), std::pair(16, 0));      // the next warp
  EXPECT_EQ(dq(32 * 8 * 4, 0), std::pair(64, 0));  // the next product
}

}  // namespace
}  // namespace longspan::sm90
