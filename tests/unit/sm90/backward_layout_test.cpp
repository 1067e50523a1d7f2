// The order in which the backward kernel leaves its sums holds every element of a tile once.
#include "kernels/sm90/backward_layout.h"

#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward_shape.h"

namespace longspan::sm90 {
namespace {

TEST(BackwardLayout, HoldsEveryElementOfDqOnce) {
  for (const int32_t head_dim : {64, 128}) {
    for (const int32_t rows : {64, 80, 128}) {
      if (head_dim == 64 && rows / 2 % 8 != 0) continue;
      std::vector<int> seen(static_cast<size_t>(rows * head_dim), 0);
      for (int32_t group = 0; group < rows * head_dim / 4; ++group)
        for (int32_t c = 0; c < 4; ++c) {
          const DqElement at = dq_element(group, c, rows, head_dim);
          ASSERT_TRUE(0 <= at.row && at.row < rows && 0 <= at.d && at.d < head_dim) << group;
          ++seen[static_cast<size_t>(at.row * head_dim + at.d)];
        }
      EXPECT_THAT(seen, testing::Each(1)) << rows << " rows, head_dim " << head_dim;
    }
  }
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
  EXPECT_EQ(dq_element(32 * 4 * 4, 0, 64, 64).row, 32);  // of head_dim 64
}

TEST(BackwardLayout, HoldsEveryElementOfDkAndDvOnce) {
  for (const int32_t head_dim : {64, 128}) {
    std::vector<int> seen(static_cast<size_t>(kBackwardKeys * head_dim), 0);
    for (int32_t group = 0; group < kBackwardKeys * head_dim / 4; ++group)
      for (int32_t c = 0; c < 4; ++c) {
        const DkvElement at = dkv_element(group, c, head_dim);
        ASSERT_TRUE(0 <= at.key && at.key < kBackwardKeys && 0 <= at.d && at.d < head_dim) << group;
        ++seen[static_cast<size_t>(at.key * head_dim + at.d)];
      }
    EXPECT_THAT(seen, testing::Each(1)) << "head_dim " << head_dim;
  }
}

}  // namespace
}  // namespace longspan::sm90
