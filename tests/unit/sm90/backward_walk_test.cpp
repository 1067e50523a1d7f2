// The walk that a simulation finds best is the one that suits the mask.
#include "kernels/sm90/backward_walk.h"

#include <string_view>

#include <gmock/gmock.h>

#include "mask/patterns.h"

namespace longspan::sm90 {
namespace {

TimedWalk walk_of(std::string_view name, int64_t seqlen, const BackwardSharing& sharing) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:400:700";
  const BackwardGrid grid = lay_tiles(draw_mask(name, options).masks, {128, 64}, true);
  const BackwardItems items = share_out(grid, sharing);
  return choose_walk(grid.map, std::span(items.work).first(static_cast<size_t>(items.per_list)), 64,
                     sharing.group, 132);
}

// From the diagonal down, short items would run after long ones, all at the same pace.
TEST(BackwardWalk, GoesFromTheLastRowUpWhereMasksAreCausal) {
  const BackwardSharing sharing{.group = 8, .parts = 8, .heads_at_once = 8};
  EXPECT_TRUE(walk_of("causal", 8192, sharing).walk.descending);
  EXPECT_TRUE(walk_of("causal", 65536, sharing).walk.descending);
}

// Items of one document have as many rows as they have keys before them: only the last row is where all
// begin.
TEST(BackwardWalk, KeepsTheItemsOfADocumentTogether) {
  const BackwardSharing sharing{.group = 8, .most_tiles = 160, .group_items = 132};
  EXPECT_EQ(walk_of("causal_document", 32768, sharing).walk, (BackwardWalk{true, true}));
}

// Over the time in which nobody would wait.
TEST(BackwardWalk, SaysHowLongItTakes) {
  EXPECT_GT(walk_of("causal", 8192, {.group = 8, .parts = 8, .heads_at_once = 8}).time, 1.0);
  EXPECT_LT(walk_of("causal", 32768, {.group = 8, .parts = 8, .heads_at_once = 8}).time, 2.0);
}

}  // namespace
}  // namespace longspan::sm90
