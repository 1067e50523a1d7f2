// The order in which the backward kernel leaves its sums holds every element of a tile once.
#include "kernels/sm90/backward_layout.h"

#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward_shape.h"

namespace longspan::sm90 {
namespace {

constexpr int32_t kKeys = 128;

TEST(BackwardLayout, HoldsEveryElementOfDqOnce) {
  struct Layout {
    int32_t rows, head_dim, columns;
  };
  for (const Layout& l : {Layout{64, 128, 64}, {80, 128, 80}, {128, 128, 128}, {64, 64, 64}, {64, 64, 32}}) {
    std::vector<int> seen(static_cast<size_t>(l.rows * l.head_dim), 0);
    for (int32_t group = 0; group < l.rows * l.head_dim / 4; ++group)
      for (int32_t c = 0; c < 4; ++c) {
        const DqElement at = dq_element(group, c, l.columns, l.head_dim);
        ASSERT_TRUE(0 <= at.row && at.row < l.rows && 0 <= at.d && at.d < l.head_dim) << group;
        ++seen[static_cast<size_t>(at.row * l.head_dim + at.d)];
      }
    EXPECT_THAT(seen, testing::Each(1)) << l.rows << " rows, head_dim " << l.head_dim;
  }
}

TEST(BackwardLayout, HasAPlaceForEachRowsStats) {
  for (const int32_t rows : {16, 64, 80}) {
    std::vector<int> seen(static_cast<size_t>(rows), 0);
    for (int32_t row = 0; row < rows; ++row) ++seen.at(static_cast<size_t>(stats_index(row)));
    EXPECT_THAT(seen, testing::Each(1));
  }
  // The first thread of a quad: rows 0, 1, 8 and 9 side by side.
  EXPECT_EQ(stats_index(0), 0);
  EXPECT_EQ(stats_index(1), 1);
  EXPECT_EQ(stats_index(8), 2);
  EXPECT_EQ(stats_index(9), 3);
  EXPECT_EQ(stats_index(2), 4);
  EXPECT_EQ(stats_index(16), 16);
}

TEST(BackwardLayout, HoldsEveryElementOfPlainDqOnce) {
  std::vector<int> seen(64 * 128, 0);
  for (int32_t group = 0; group < 64 * 128 / 4; ++group)
    for (int32_t c = 0; c < 4; ++c) {
      const DqElement at = plain_dq_element(group, c);
      ASSERT_TRUE(0 <= at.row && at.row < 64 && 0 <= at.d && at.d < 128) << group;
      ++seen[static_cast<size_t>(at.row * 128 + at.d)];
    }
  EXPECT_THAT(seen, testing::Each(1));
}

// Accumulators of wgmma: two neighbouring columns, then the same of eight rows further down.
TEST(BackwardLayout, FollowsTheAccumulatorsOfAWarpgroup) {
  const auto dq = [](int32_t group, int32_t c) {
    const DqElement at = dq_element(group, c, 64, 128);
    return std::pair(at.d, at.row);
  };
  EXPECT_EQ(dq(0, 0), std::pair(0, 0));
  EXPECT_EQ(dq(0, 1), std::pair(0, 1));
  EXPECT_EQ(dq(0, 2), std::pair(8, 0));
  EXPECT_EQ(dq(1, 0), std::pair(0, 2));                  // the next thread of a quad
  EXPECT_EQ(dq(4, 0), std::pair(1, 0));                  // the next quad
  EXPECT_EQ(dq(32, 0), std::pair(0, 8));                 // the next 8 columns
  EXPECT_EQ(dq(32 * 8, 0), std::pair(16, 0));            // the next warp
  EXPECT_EQ(dq(32 * 8 * 4, 0), std::pair(64, 0));        // the other warpgroup
  EXPECT_EQ(dq_element(32 * 4 * 4, 0, 32, 64).row, 32);  // of head_dim 64
}

TEST(BackwardLayout, HoldsEveryElementOfDkAndDvOnce) {
  for (const int32_t head_dim : {64, 128}) {
    std::vector<int> seen(static_cast<size_t>(kKeys * head_dim), 0);
    for (int32_t group = 0; group < kKeys * head_dim / 4; ++group)
      for (int32_t c = 0; c < 4; ++c) {
        const DkvElement at = dkv_element(group, c, head_dim);
        ASSERT_TRUE(0 <= at.key && at.key < kKeys && 0 <= at.d && at.d < head_dim) << group;
        ++seen[static_cast<size_t>(at.key * head_dim + at.d)];
      }
    EXPECT_THAT(seen, testing::Each(1)) << "head_dim " << head_dim;
  }
}

}  // namespace
}  // namespace longspan::sm90
