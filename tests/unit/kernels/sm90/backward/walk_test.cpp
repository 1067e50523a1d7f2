// The simulated cost of walks and orders with ordered additions.
#include "kernels/sm90/backward/planner/walk.h"

#include <memory>
#include <string_view>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

constexpr BackwardWalk kDownByRows{true, true}, kUpByRows{false, true};

struct Arranged {
  BackwardArrangement all;
  int32_t rows = 0;  // of a row tile
  double l2_visits = 0;
};

Arranged arranged(std::string_view name, int64_t seqlen, const BackwardSplit& split) {
  PatternOptions options;
  options.seqlen = seqlen;
  Problem problem;
  problem.masks = std::make_shared<const HeadMasks>(draw_mask(name, options).masks);
  problem.tokens_q = problem.tokens_kv = seqlen;
  problem.heads_q = 64, problem.heads_kv = 8, problem.head_dim = 128;
  problem.dtype = DType::kBF16;
  problem.deterministic = true;
  BackwardShape shape = choose_backward_shape(problem);
  shape.split = split;
  shape.split->last_rounds = h200::backward::kOrderedLastRounds;
  return {arrange_backward(problem, shape, 132), shape.rows};
}

double time_of(const Arranged& arranged, const BackwardSections& sections) {
  const BackwardArrangement& all = arranged.all;
  return time_walk(all.grid.map, std::span(all.items.work).first(static_cast<size_t>(all.items.per_list)),
                   all.split.walk, {.l2_visits = arranged.l2_visits, .sections = sections, .workers = 132});
}

double time_of(std::string_view name, int64_t seqlen, const BackwardSplit& split) {
  const Arranged it = arranged(name, seqlen, split);
  return time_of(it, it.all);
}

// From the diagonal down, short items run after long ones at the same pace. From the last row up, all items
// begin at the same row.
TEST(BackwardWalk, IsShortestFromTheLastRowUpWhereMasksAreCausal) {
  const BackwardSplit down{.order = KeyOrder::kByKeys, .walk = kDownByRows};
  BackwardSplit up = down;
  up.walk = kUpByRows;
  EXPECT_LT(time_of("causal", 8192, down), 1.1);
  EXPECT_GT(time_of("causal", 8192, up), 1.15);
}

// Of 128 items for 132 CTAs the next head's begin one after the other, and each finds no rows of the one
// before in L2. With 256 items of half the heads, most begin together.
TEST(BackwardWalk, TakesLongerWhereRowsAreNotInL2) {
  const BackwardSplit whole{.order = KeyOrder::kByKeys, .walk = kDownByRows};
  BackwardSplit halves = whole;
  halves.parts = 2;
  const auto time_with_l2 = [](const BackwardSplit& split) {
    Arranged it = arranged("causal", 16384, split);
    it.l2_visits = h200::backward::kReusedRows / (it.rows * 128.0);
    return time_of(it, it.all);
  };
  EXPECT_LT(time_of("causal", 16384, whole), 1.05);
  EXPECT_GT(time_with_l2(whole), 1.25);
  EXPECT_LT(time_with_l2(halves), 1.1);
}

// Parts of a key tile wait for each other's dk and dv.
TEST(BackwardWalk, TakesLongerInParts) {
  const BackwardSplit whole{.order = KeyOrder::kByKeys};
  BackwardSplit parts = whole;
  parts.parts = 8;
  EXPECT_GT(time_of("full", 4096, parts), 1.1 * time_of("full", 4096, whole));
}

// What all rows see comes first if an item of it takes most of a CTA's time, and last if it does not.
TEST(BackwardWalk, TakesASharedQuestionInTheOrderThatWasMeasuredToBeFaster) {
  BackwardSplit heaviest{
      .most_tiles = 640, .order = KeyOrder::kHeaviestFirst, .group_items = 1, .walk = kDownByRows};
  BackwardSplit from_last = heaviest;
  from_last.order = KeyOrder::kFromLastKey;
  EXPECT_LT(time_of("share_question", 8192, heaviest), 0.9 * time_of("share_question", 8192, from_last));
  EXPECT_LT(time_of("share_question", 32768, from_last), 0.9 * time_of("share_question", 32768, heaviest));
}

// The last rows take an addition from every key tile.
TEST(BackwardWalk, TakesLessOnManyHeadsAtOnceWhereAllColumnsEndTogether) {
  BackwardSplit one{
      .most_tiles = 640, .order = KeyOrder::kHeaviestFirst, .group_items = 1, .walk = kDownByRows};
  BackwardSplit many = one;
  many.kv_heads = 8;
  EXPECT_LT(time_of("causal_blockwise", 32768, many), 0.95 * time_of("causal_blockwise", 32768, one));
}

// The first two heads stand for all of 64K tokens. A section that would reach into as many heads as the last
// section has is not begun, as in the kernel.
TEST(BackwardWalk, KeepsTheLastSectionIfFewerHeadsStandForAll) {
  const Arranged all = arranged("causal", 65536, {.order = KeyOrder::kByKeys, .walk = kDownByRows});
  EXPECT_EQ(time_of(all, {3, 2, 8, 8}), time_of(all, {2, 0, 2, 8}));
  EXPECT_EQ(time_of(all, {1, 6, 7, 8}), time_of(all, {1, 1, 2, 8}));
  EXPECT_NE(time_of(all, {1, 6, 7, 8}), time_of(all, {2, 0, 2, 8}));
}

// At least the time in which no CTA waits, whatever the simulation leaves out.
TEST(BackwardWalk, SaysHowLongItTakes) {
  const BackwardSplit split{.order = KeyOrder::kByKeys, .walk = kDownByRows};
  for (const int64_t seqlen : {8192, 65536}) {
    EXPECT_GE(time_of("causal", seqlen, split), 1.0) << seqlen;
    EXPECT_LT(time_of("causal", seqlen, split), 1.5) << seqlen;
  }
}

}  // namespace
}  // namespace longspan::sm90
