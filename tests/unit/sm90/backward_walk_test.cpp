// The walk that a simulation finds best is the one that suits the mask.
#include "kernels/sm90/backward_walk.h"

#include <string_view>

#include <gmock/gmock.h>

#include "mask/patterns.h"

namespace longspan::sm90 {
namespace {

BackwardWalk walk_of(std::string_view name, int64_t seqlen, const BackwardSharing& sharing, bool ordered) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:400:700";
  const BackwardGrid grid = lay_tiles(draw_mask(name, options).masks, {128, 64}, true);
  const BackwardItems items = share_out(grid, sharing);
  return choose_walk(grid.map, std::span(items.work).first(static_cast<size_t>(items.per_list)), 64,
                     sharing.group, 132, ordered);
}

// From the diagonal down, short items would run after long ones, all at the same pace.
TEST(BackwardWalk, GoesFromTheLastRowUpWhereMasksAreCausal) {
  const BackwardSharing sharing{.group = 8, .parts = 8, .heads_at_once = 8};
  EXPECT_TRUE(walk_of("causal", 8192, sharing, true).descending);
}

// Items of one document have as many rows as they have keys before them: only the last row is where all
// begin.
TEST(BackwardWalk, KeepsTheItemsOfADocumentTogether) {
  const BackwardSharing sharing{.group = 8, .most_tiles = 160, .group_items = 132};
  for (const bool ordered : {false, true})
    EXPECT_EQ(walk_of("causal_document", 32768, sharing, ordered), (BackwardWalk{true, true})) << ordered;
}

// Neighbours are two rows apart: with eight heads a row they would be sixteen tiles apart.
TEST(BackwardWalk, GoesHeadByHeadThroughWindows) {
  const BackwardSharing sharing{.group = 8, .most_tiles = 160, .group_items = 132};
  for (const bool ordered : {false, true})
    EXPECT_FALSE(walk_of("sliding_window_causal", 32768, sharing, ordered).by_rows) << ordered;
}

}  // namespace
}  // namespace longspan::sm90
