// Dividing the last items loses none of their tiles, and lets blocks end together where they would not.
#include "kernels/sm90/backward_tail.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "drawn_problem.h"
#include "kernels/sm90/backward_arrangement.h"

namespace longspan::sm90 {
namespace {

constexpr int kBlocks = 132;

Problem problem_of(std::string_view name, int64_t seqlen, int64_t heads_q = 64, int64_t heads_kv = 8) {
  PatternOptions options;
  options.seqlen = seqlen;
  return drawn_problem(name, options, heads_q, heads_kv);
}

BackwardArrangement arranged(const Problem& problem, bool tail) {
  BackwardShape shape = choose_backward_shape(problem);
  shape.pass_blocks = 0;
  shape.tail = tail;
  return arrange_backward(problem, shape, kBlocks);
}

int64_t tiles_of(const BackwardArrangement& all, const BackwardWork& item) {
  int64_t tiles = 0;
  for (int32_t r = 0; r < item.runs; ++r)
    tiles += std::max(all.grid.map.runs[item.first_run + static_cast<uint32_t>(r)].code, 1);
  return tiles * item.heads;
}

// The items in the order in which blocks take them, as the load warp reads them.
std::vector<BackwardWork> taken(const BackwardArrangement& all, int32_t heads_kv) {
  std::vector<BackwardWork> items;
  const int32_t per_section = all.section_heads * all.items.per_list;
  for (int32_t index = 0; index < all.items.per_list * heads_kv; ++index) {
    const int32_t section = std::min(index / per_section, all.last_section);
    const int32_t heads =
        section == all.last_section ? heads_kv - section * all.section_heads : all.section_heads;
    const int32_t position = (index - section * per_section) / heads;
    const BackwardWork item =
        all.items.work[static_cast<size_t>((section == all.last_section ? all.last_list : 0) + position)];
    if (item.heads > 0) items.push_back(item);
  }
  return items;
}

// When the last block is done over when all of them could be, an item taking so many tiles' time beside its
// own.
double unevenness(const BackwardArrangement& all, int32_t heads_kv, double item_s) {
  std::priority_queue<double, std::vector<double>, std::greater<>> blocks;
  for (int i = 0; i < kBlocks; ++i) blocks.push(0);
  double last = 0, sum = 0;
  for (const BackwardWork& item : taken(all, heads_kv)) {
    const double takes = static_cast<double>(tiles_of(all, item)) + item_s, end = blocks.top() + takes;
    blocks.pop();
    blocks.push(end);
    last = std::max(last, end);
    sum += takes;
  }
  return last / (sum / kBlocks);
}

TEST(BackwardTail, LetsBlocksEndTogether) {
  for (const auto& [name, seqlen] : {std::pair{"full", 8192},
                                     {"sliding_window", 8192},
                                     {"sliding_window_causal", 8192},
                                     {"sliding_window_causal", 16384},
                                     {"share_question", 32768}}) {
    SCOPED_TRACE(testing::Message() << name << " " << seqlen);
    const Problem problem = problem_of(name, seqlen);
    const BackwardArrangement before = arranged(problem, false), after = arranged(problem, true);
    EXPECT_GT(unevenness(before, 8, 0), 1.025);
    EXPECT_LT(unevenness(after, 8, 0), 1.015);
    EXPECT_GT(after.items.per_list, before.items.per_list);
    EXPECT_EQ(after.last_section, before.last_section);  // what is worked on together stays together
    EXPECT_EQ(after.section_heads, before.section_heads);
    // The first list, which other sections use, is the one that was there.
    for (int32_t i = 0; i < after.items.per_list; ++i) {
      const BackwardWork& item = after.items.work[static_cast<size_t>(i)];
      if (i >= before.items.per_list) {
        EXPECT_EQ(item.heads, 0);
        continue;
      }
      const BackwardWork& same = before.items.work[static_cast<size_t>(i)];
      EXPECT_EQ(std::tuple(item.key_tile, item.first_run, item.runs, item.first_head, item.heads),
                std::tuple(same.key_tile, same.first_run, same.runs, same.first_head, same.heads));
    }
  }
}

TEST(BackwardTail, ChangesNothingWhereBlocksEndTogetherAnyway) {
  for (const auto& [name, seqlen] :
       {std::pair{"causal", 8192}, {"full", 32768}, {"causal_document", 32768}, {"full_document", 49152}}) {
    SCOPED_TRACE(testing::Message() << name << " " << seqlen);
    const Problem problem = problem_of(name, seqlen);
    const BackwardArrangement before = arranged(problem, false), after = arranged(problem, true);
    EXPECT_EQ(after.items.per_list, before.items.per_list);
    EXPECT_EQ(after.items.lists, before.items.lists);
    EXPECT_EQ(after.items.shared, before.items.shared);
    EXPECT_EQ(after.grid.map.runs.size(), before.grid.map.runs.size());
  }
}

// Whatever the items and blocks: each tile of each head once, and a number of its own for each part of a key
// tile.
TEST(BackwardTail, DividesEveryItemIntoAllOfItsTiles) {
  for (const char* name : {"full", "causal", "sliding_window", "share_question", "causal_blockwise"})
    for (const int32_t group : {2, 6, 8})
      for (const int32_t parts : {1, 2})
        for (const int64_t workers : {3, 40, 400}) {
          SCOPED_TRACE(testing::Message() << name << " " << group << " " << parts << " " << workers);
          constexpr int32_t kRows = 64;
          const Problem problem = problem_of(name, 5000);
          BackwardGrid grid = lay_tiles(*problem.masks, {128, kRows}, true);
          const CompiledMap whole = grid.map;
          BackwardItems items = share_out(grid, {.group = group, .parts = parts});
          const bool divided =
              divide_tail(items, grid, {.workers = workers, .heads_kv = 2, .last_section = 1, .rows = kRows});
          EXPECT_EQ(divided, items.lists == 2);
          if (!divided) continue;
          EXPECT_TRUE(items.shared);
          std::map<std::tuple<int32_t, int32_t, int32_t>, int> wanted, seen;  // head, key tile, row tile
          const auto add = [&](auto& to, const CompiledMap& map, int32_t head, int32_t tile, uint32_t first,
                               int32_t runs) {
            for (uint32_t r = first; r < first + static_cast<uint32_t>(runs); ++r)
              for (int32_t t = 0; t < std::max(map.runs[r].code, 1); ++t)
                ++to[{head, tile, map.runs[r].column / kRows + t}];
          };
          for (const WorkRow& row : whole.work)
            for (int32_t head = 0; head < group; ++head)
              add(wanted, whole, head, row.row_tile, row.first_run, row.runs);
          std::map<int32_t, std::multiset<int32_t>> numbers;
          for (int32_t i = 0; i < items.per_list; ++i) {
            const BackwardWork& item = items.work[static_cast<size_t>(items.per_list + i)];
            numbers[item.key_tile].insert(item.part);
            for (int32_t head = item.first_head; head < item.first_head + item.heads; ++head)
              add(seen, grid.map, head, item.key_tile, item.first_run, item.runs);
          }
          EXPECT_EQ(seen, wanted);
          for (const auto& [tile, all] : numbers) {
            EXPECT_EQ(static_cast<size_t>(*all.rbegin()) + 1, all.size());
            EXPECT_EQ(std::set<int32_t>(all.begin(), all.end()).size(), all.size());
            EXPECT_GE(items.key_tiles[static_cast<size_t>(tile)].parts, static_cast<int32_t>(all.size()));
          }
        }
}

TEST(BackwardTail, IsNotForPartsInOrderNorMasksOfHeadsNorSingleHeads) {
  Problem problem = problem_of("sliding_window", 8192);
  EXPECT_TRUE(can_divide_tail(problem, choose_backward_shape(problem)));
  problem.deterministic = true;
  EXPECT_FALSE(can_divide_tail(problem, choose_backward_shape(problem)));
  EXPECT_EQ(arranged(problem, true).items.work.size(), arranged(problem, false).items.work.size());
  problem = problem_of("sliding_window", 8192, 8, 8);
  EXPECT_FALSE(can_divide_tail(problem, choose_backward_shape(problem)));
  PatternOptions options;
  options.seqlen = 8192;
  options.kv_heads = 4;
  problem = drawn_problem("variable_block_sparse", options, 32, 4);
  EXPECT_FALSE(can_divide_tail(problem, choose_backward_shape(problem)));
}

}  // namespace
}  // namespace longspan::sm90
