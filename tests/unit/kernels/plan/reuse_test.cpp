// The visits that find their rows in a cache, where that can be said without a simulation.
#include "kernels/plan/reuse.h"

#include <gtest/gtest.h>

namespace longspan::plan {
namespace {

// A round of visits to ten rows, over and over, at one visit for each unit of time.
Reuse rounds(int count) {
  Reuse reuse;
  for (int visit = 0; visit < 10 * count; ++visit) reuse.add(visit < 10 ? 0 : 10);
  return reuse;
}

TEST(Reuse, MissesFirstVisitsAloneIfTheCacheHoldsAllRows) {
  EXPECT_DOUBLE_EQ(rounds(10).missed(11, 1), 0.1);
  EXPECT_DOUBLE_EQ(rounds(4).missed(1000, 1), 0.25);
}

TEST(Reuse, MissesAllVisitsIfRowsAreLostBeforeTheNextOne) {
  EXPECT_EQ(rounds(10).missed(9, 1), 1);
  EXPECT_EQ(rounds(10).missed(11, 2), 1);
}

// What is found is not loaded, so the rows with a longer wait are lost later.
TEST(Reuse, LosesRowsOnlyByWhatIsLoaded) {
  Reuse reuse;
  for (int visit = 0; visit < 100; ++visit) reuse.add(visit < 90 ? 1 : 40);
  EXPECT_DOUBLE_EQ(reuse.missed(3, 1), 0.1);
  EXPECT_DOUBLE_EQ(reuse.missed(5, 1), 0);
}

TEST(Reuse, HasNoVisits) {
  EXPECT_EQ(Reuse().missed(1, 1), 1);
}

}  // namespace
}  // namespace longspan::plan
