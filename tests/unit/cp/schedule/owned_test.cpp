// Schedules on a given placement: several masks share one, and a placement need not come from the strategy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cp/schedule/account.h"
#include "cp/strategies/strategy.h"
#include "unit/cp/problems.h"
#include "unit/cp/strategy_name.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

class GivenPlacement : public ::testing::TestWithParam<Strategy> {};

TEST_P(GivenPlacement, ServesEveryMask) {
  for (const char* first : {"causal", "causal_document", "sliding_window"}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const Problem placed = cp_problem(first, 509, 8, 2);
      const std::vector<Ranges> owned = GetParam().schedule(placed, {1, ranks}, {}).owned;
      for (const Pattern& pattern : patterns()) {
        const std::string name(pattern.name);
        if (cp_length(name) != 509) continue;
        SCOPED_TRACE(fmt::format("{} on the placement of {}, {} ranks", name, first, ranks));
        const Problem problem = cp_problem(name, 509, 8, 2);
        const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {}, owned);
        EXPECT_EQ(schedule.owned, owned);
        ASSERT_NO_THROW(check(schedule, problem));
        int64_t area = 0;
        for (const int64_t part : cost_of(schedule, problem, {1, ranks}).forward.area) area += part;
        EXPECT_EQ(area, problem.area());
      }
    }
  }
}

TEST_P(GivenPlacement, OfItsOwnChangesNothing) {
  for (const Pattern& pattern : patterns()) {
    const std::string name(pattern.name);
    const Problem problem = cp_problem(name, cp_length(name), 8, 4);
    for (const int ranks : {1, 3, 4, 8}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, ranks));
      const Topology topology{1, ranks};
      const Schedule own = GetParam().schedule(problem, topology, {});
      const Schedule given = GetParam().schedule(problem, topology, {}, own.owned);
      EXPECT_EQ(given.owned, own.owned);
      EXPECT_EQ(given.regions, own.regions);
      const Cost a = cost_of(own, problem, topology), b = cost_of(given, problem, topology);
      for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
        EXPECT_EQ(a.of(direction).sent_within, b.of(direction).sent_within);
        EXPECT_EQ(a.of(direction).area, b.of(direction).area);
        EXPECT_EQ(a.of(direction).rounds.size(), b.of(direction).rounds.size());
        EXPECT_EQ(a.of(direction).peak_elements, b.of(direction).peak_elements);
      }
    }
  }
}

TEST_P(GivenPlacement, MustBeAPartition) {
  const Problem problem = cp_problem("causal", 100, 8, 2);
  const auto message = [&](const std::vector<Ranges>& owned) {
    try {
      static_cast<void>(GetParam().schedule(problem, {1, 2}, {}, owned));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(message({{{0, 100}}}), HasSubstr("tokens of 1 ranks are given for 2"));
  EXPECT_THAT(message({{{0, 50}}, {{40, 100}}}), HasSubstr("token 40 is given to two ranks"));
  EXPECT_THAT(message({{{0, 50}}, {{60, 100}}}), HasSubstr("token 50 is given to no rank"));
  EXPECT_THAT(message({{{0, 50}}, {{50, 99}}}), HasSubstr("token 99 is given to no rank"));
  EXPECT_THAT(message({{{0, 50}}, {{50, 101}}}), HasSubstr("rank 1 is given tokens 50 to 101"));
  EXPECT_THAT(message({{{-1, 50}}, {{50, 100}}}), HasSubstr("rank 0 is given tokens -1 to 50"));
  EXPECT_THAT(message({{{0, 50}, {50, 50}}, {{50, 100}}}), HasSubstr("must not be empty"));
  EXPECT_EQ(message({{}, {{70, 100}, {0, 70}}}), "nothing was thrown");
}

INSTANTIATE_TEST_SUITE_P(All, GivenPlacement, ::testing::ValuesIn(strategies().begin(), strategies().end()),
                         strategy_name);

}  // namespace
}  // namespace longspan
