// CTAs are taken in the order of their times, near and far.
#include "kernels/plan/agenda.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

TEST(Agenda, TakesTheEarliestFirst) {
  Agenda agenda(3);
  agenda.add(0, 7);
  agenda.add(1, 2);
  agenda.add(2, 5000);  // further ahead than it has slots
  EXPECT_EQ(agenda.take(), 1);
  EXPECT_EQ(agenda.now(), 2);
  agenda.add(1, 7);  // after the one that was added for this time before
  EXPECT_EQ(agenda.take(), 0);
  EXPECT_EQ(agenda.take(), 1);
  EXPECT_EQ(agenda.now(), 7);
  EXPECT_EQ(agenda.take(), 2);
  EXPECT_EQ(agenda.now(), 5000);
}

TEST(Agenda, OrdersStepsOfAnyLength) {
  std::mt19937 generator(1);
  constexpr int32_t kWorkers = 40;
  Agenda agenda(kWorkers);
  std::multiset<int32_t> times;
  const auto add = [&](int32_t worker, int32_t time) {
    agenda.add(worker, time);
    times.insert(time);
  };
  for (int32_t worker = 0; worker < kWorkers; ++worker) add(worker, 0);
  for (int step = 0; step < 20000; ++step) {
    const int32_t worker = agenda.take();
    ASSERT_EQ(agenda.now(), *times.begin());
    times.erase(times.begin());
    add(worker, agenda.now() + static_cast<int32_t>(generator() % (step % 7 == 0 ? 3000 : 40)));
  }
}

}  // namespace
}  // namespace longspan::plan
