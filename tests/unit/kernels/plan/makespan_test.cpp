// The end of CTAs that take items in order, against the plainest simulation of it.
#include "kernels/plan/makespan.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

TEST(Makespan, IsThatOfEachItemGoingToTheFirstFreeWorker) {
  std::mt19937 random(3);
  for (const int64_t workers : {1, 2, 3, 7, 132}) {
    Makespan makespan(workers);
    std::vector<double> free_at(static_cast<size_t>(workers), 0);
    for (int i = 0; i < 1000; ++i) {
      const double time = 1 + random() % 100 / 8.0;
      const auto count = static_cast<int64_t>(random() % 3);
      makespan.take(time, count);
      for (int64_t j = 0; j < count; ++j) *std::ranges::min_element(free_at) += time;
      ASSERT_EQ(makespan.begun(), *std::ranges::min_element(free_at));
      ASSERT_EQ(makespan.end(), *std::ranges::max_element(free_at));
    }
  }
}

TEST(Makespan, BeginsAsEqualItemsEnd) {
  for (const int64_t workers : {1, 4, 132})
    for (const int items : {0, 1, 3, 4, 5, 264, 1000}) {
      Makespan one_by_one(workers);
      one_by_one.take(2.5, items);
      Makespan at_once(workers, items, 2.5);
      EXPECT_EQ(at_once.end(), one_by_one.end());
      EXPECT_EQ(at_once.begun(), one_by_one.begun());
      EXPECT_EQ(at_once.end(), 2.5 * std::ceil(static_cast<double>(items) / static_cast<double>(workers)));
      one_by_one.take(1, 200);
      at_once.take(1, 200);
      EXPECT_EQ(at_once.end(), one_by_one.end());
    }
}

}  // namespace
}  // namespace longspan::plan
