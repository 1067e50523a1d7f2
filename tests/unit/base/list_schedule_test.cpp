#include "base/list_schedule.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace longspan {
namespace {

int64_t end_of(const std::vector<int64_t>& costs, int64_t copies, int64_t workers) {
  return list_schedule_end(costs, copies, workers);
}

TEST(ListSchedule, EndsWithTheLastWorker) {
  EXPECT_EQ(end_of({}, 1, 2), 0);
  EXPECT_EQ(end_of({7}, 1, 2), 7);
  EXPECT_EQ(end_of({7}, 5, 2), 21);             // three rounds
  EXPECT_EQ(end_of({3, 3, 2, 2, 2}, 1, 2), 7);  // Graham's order is not always the best one, which ends at 6
  EXPECT_EQ(end_of({2, 2, 2, 3, 3}, 1, 2), 7);
  EXPECT_EQ(end_of({1, 1, 8}, 1, 2), 9);
}

TEST(ListSchedule, IsThatOfWorkersOneByOne) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> costs(random() % 20);
    for (int64_t& cost : costs) cost = 1 + random() % 30;
    const int64_t copies = 1 + random() % 5;
    std::vector<int64_t> free_at(1 + random() % 9);
    const auto workers = static_cast<int64_t>(free_at.size());
    for (const int64_t cost : costs)
      for (int64_t copy = 0; copy < copies; ++copy) *std::ranges::min_element(free_at) += cost;
    EXPECT_EQ(end_of(costs, copies, workers), costs.empty() ? 0 : std::ranges::max(free_at));
  }
}

}  // namespace
}  // namespace longspan
