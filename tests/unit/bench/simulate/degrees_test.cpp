// Groups of ranks for the micro-batches of a step: closed forms, and bounds on random ones.
#include "bench/simulate/degrees.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

namespace longspan::bench {
namespace {

using ::testing::ElementsAre;

TEST(StepTime, OfGroupsSideBySideAndOneAfterAnother) {
  EXPECT_EQ(step_time_s(8, 1, {{8, 3}, {8, 2}}), 5);
  EXPECT_EQ(step_time_s(8, 1, {{4, 3}, {4, 2}}), 3);
  EXPECT_EQ(step_time_s(8, 1, {{4, 2}, {4, 3}, {4, 2}}), 4);  // the longest first
  EXPECT_EQ(step_time_s(8, 1, {{2, 1}, {4, 4}, {2, 1}, {2, 1}}), 4);
  EXPECT_EQ(step_time_s(6, 1, {{3, 1}, {3, 1}, {2, 5}}), 6);  // groups of 2 begin at 0, 2 and 4
  EXPECT_EQ(step_time_s(1, 1, {{1, 1}, {1, 2}}), 3);
}

TEST(StepTime, OfAPipelineAddsTheLongestForEachFurtherStage) {
  EXPECT_EQ(step_time_s(4, 4, {{4, 1}, {4, 2}, {4, 1}}), 4 + 3 * 2);
}

TEST(ChooseGroups, GivesAShortMicroBatchFewRanksBesideALongOne) {
  // The long one takes 8 on one rank, 4 on two; each short one 4 on one rank, 3 on two.
  const std::vector<GroupTime> slow = {{1, 8}, {2, 4}, {4, 3}}, fast = {{1, 4}, {2, 3}, {4, 2.5}};
  const std::vector<size_t> chosen = choose_groups(4, 1, {slow, fast, fast});
  EXPECT_THAT(chosen, ElementsAre(1, 0, 0));
}

TEST(ChooseGroups, TakesTheFastestOfOneDegree) {
  EXPECT_THAT(choose_groups(2, 1, {{{2, 3}, {2, 1}, {2, 2}}}), ElementsAre(1));
}

TEST(ChooseGroups, IsNeverWorseThanOneDegreeForAllNorBetterThanTheWork) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = std::vector{4, 6, 8, 16}[static_cast<size_t>(below(4))], stages = 1 + below(3);
    std::vector<std::vector<GroupTime>> choices(static_cast<size_t>(1 + below(12)));
    for (auto& of_batch : choices) {
      const double work = 1 + below(100), fixed = below(10);
      for (int degree = 1; degree <= ranks; ++degree)
        if (ranks % degree == 0) of_batch.push_back({degree, fixed + work / degree});
    }
    const auto time_of = [&](auto&& choice_of) {
      std::vector<GroupTime> times;
      for (size_t i = 0; i < choices.size(); ++i) times.push_back(choices[i][choice_of(i)]);
      return std::pair(step_time_s(ranks, stages, times), times);
    };
    const std::vector<size_t> chosen = choose_groups(ranks, stages, choices);
    const auto [time_s, times] = time_of([&](size_t i) { return chosen[i]; });
    for (size_t degree = 0; degree < choices[0].size(); ++degree)
      EXPECT_LE(time_s, time_of([&](size_t) { return degree; }).first);
    double work = 0, longest = 0;
    for (const GroupTime& group : times) {
      work += group.degree * group.time_s;
      longest = std::max(longest, group.time_s);
    }
    EXPECT_GE(time_s * (1 + 1e-12), work / ranks + (stages - 1) * longest);
    EXPECT_GE(time_s, longest * stages);
  }
}

}  // namespace
}  // namespace longspan::bench
