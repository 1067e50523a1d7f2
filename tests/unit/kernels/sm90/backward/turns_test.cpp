// Turns in the order of items: each row tile takes its key tiles one by one, and no two CTAs wait for each
// other.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/schedule.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

constexpr int32_t kRows = 64, kKeys = 128;

HeadMasks draw(std::string_view name, int64_t seqlen, int64_t kv_heads = 1) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:20:300";
  options.kv_heads = kv_heads;
  return draw_mask(name, options).masks;
}

// Walks the items one after the other, as a single CTA would: every turn must have come when it is needed.
void expect_orderly(const HeadMasks& masks, bool descending) {
  const BackwardGrid grid = lay_tiles(masks, {kKeys, kRows}, false);
  const CompiledMap& map = grid.map;
  BackwardItems items = share_out(grid, {});
  const BackwardSchedule order = order_by_items(map, items, descending);
  ASSERT_EQ(items.work.size(), map.work.size());
  size_t walked = 0;
  for (size_t item = 0; item < map.work.size();) {
    std::map<int32_t, int32_t> added;  // by row tile
    for (int32_t position = 0; position < map.row_tiles; ++position, ++item) {
      const WorkRow& work = map.work[item];
      EXPECT_EQ(items.work[item].key_tile, work.row_tile);
      EXPECT_EQ(items.work[item].first_turn, walked);
      for (int32_t i = 0; i < work.runs; ++i) {
        const int32_t r = descending ? work.runs - 1 - i : i;
        const DeviceRun& run = map.runs[work.first_run + static_cast<uint32_t>(r)];
        const int32_t tiles = std::max(run.code, 1);
        for (int32_t t = 0; t < tiles; ++t) {
          const int32_t tile = run.column / kRows + (descending ? tiles - 1 - t : t);
          EXPECT_EQ(order.turns.at(walked++), added[tile]++);
        }
      }
    }
  }
  EXPECT_EQ(order.turns.size(), walked + kTurnsAtOnce);
  EXPECT_EQ(order.streams, 0);
}

TEST(BackwardTurns, GiveEachAdditionItsTurn) {
  for (const char* name :
       {"full", "causal", "causal_document", "sliding_window", "share_question", "prefix_lm_causal"})
    for (const bool descending : {false, true}) {
      SCOPED_TRACE(name);
      expect_orderly(draw(name, 2000), descending);
    }
}

TEST(BackwardTurns, KeepMasksOfSeveralHeadsApart) {
  expect_orderly(draw("uniform_block_sparse", 2000, 3), true);
}

}  // namespace
}  // namespace longspan::sm90
