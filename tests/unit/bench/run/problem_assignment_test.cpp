// Which device measures which problem.
#include "bench/run/problem_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspan::bench {
namespace {

using testing::ElementsAre;

Case case_of(const char* kernel, int64_t seqlen, Direction direction = Direction::kForward) {
  Case c;
  c.kernel = kernel;
  c.mask = "full";
  c.seqlen = seqlen;
  c.heads_q = c.heads_kv = 1;
  c.head_dim = 8;
  c.direction = direction;
  return c;
}

std::vector<int64_t> lengths_of(ProblemAssignment& assignment, size_t device) {
  std::vector<int64_t> lengths;
  while (const auto portion = assignment.next(device)) lengths.push_back(portion->cases.front().seqlen);
  return lengths;
}

TEST(ProblemAssignment, APortionIsAllKernelsOfOneProblemInBothPasses) {
  const std::vector<Portion> portions = portions_of(
      {case_of("a", 64), case_of("a", 32), case_of("b", 64), case_of("b", 64, Direction::kBackward)});
  ASSERT_EQ(portions.size(), 2u);
  EXPECT_THAT(portions[0].cases,
              ElementsAre(case_of("a", 64), case_of("b", 64), case_of("b", 64, Direction::kBackward)));
  EXPECT_THAT(portions[1].cases, ElementsAre(case_of("a", 32)));
}

TEST(ProblemAssignment, ADeviceTakesItsOwnFirstAndNeverThoseOfOthers) {
  const std::vector<Case> cases = {case_of("a", 1), case_of("a", 2), case_of("a", 3), case_of("a", 4)};
  const std::map<std::string, size_t> homes = {{problem_of(cases[3]), 1}, {problem_of(cases[0]), 0}};
  ProblemAssignment assignment(portions_of(cases), homes, 2);
  EXPECT_THAT(lengths_of(assignment, 1), ElementsAre(4, 2, 3));
  EXPECT_THAT(lengths_of(assignment, 0), ElementsAre(1));
}

}  // namespace
}  // namespace longspan::bench
