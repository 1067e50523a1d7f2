// The split of a backward pass: the cheapest by the planner's own cost if it has one; else balanced items
// that are no longer than their limit.
#include "kernels/sm90/backward/planner/choose_split.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"
#include "unit/kernels/sm90/drawn_problem.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr int64_t kUnits = 132;

Problem problem_of(std::string_view name, int64_t seqlen, bool deterministic = false, int64_t heads_kv = 8) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = heads_kv;
  Problem problem = drawn_problem(name, options, 64, heads_kv);
  problem.deterministic = deterministic;
  return problem;
}

BackwardArrangement arranged(const Problem& problem) {
  return arrange_backward(problem, choose_backward_shape(problem), kUnits);
}

BackwardSplit split_of(const Problem& problem) {
  return arranged(problem).split;
}

// CTAs that take items from the beginning.
int64_t workers_of(const BackwardArrangement& all) {
  return kUnits - all.pass_ctas;
}

std::vector<std::string_view> dense_patterns() {
  std::vector<std::string_view> names;
  for (const Pattern& pattern : patterns())
    if (!pattern.block_sparse) names.push_back(pattern.name);
  return names;
}

double time_of(const BackwardArrangement& all, const BackwardWork& item) {
  double time = 0;
  for (uint32_t run = item.first_run; run < item.first_run + static_cast<uint32_t>(item.runs); ++run) {
    const int32_t code = all.grid.map.runs[run].code;
    time += code > 0 ? code : 1 + tuned::kPartialTileCost;
  }
  return time * item.heads;
}

int64_t tiles_of(const BackwardArrangement& all, const BackwardWork& item) {
  int64_t tiles = 0;
  for (uint32_t run = item.first_run; run < item.first_run + static_cast<uint32_t>(item.runs); ++run)
    tiles += std::max(all.grid.map.runs[run].code, 1);
  return tiles * item.heads;
}

struct Simulated {
  double end = 0, balanced = 0;  // in tiles: when the last CTA is done, and when all would be
};

// Each CTA takes the next item as soon as it is free, from the first item to the last.
Simulated simulate(const BackwardArrangement& all) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int64_t i = 0; i < workers_of(all); ++i) free_at.push(0);
  Simulated result;
  for (int32_t section = 0; section <= all.last_section; ++section) {
    const int32_t heads = all.heads_of(section);
    const size_t list = section == all.last_section ? static_cast<size_t>(all.last_list) : 0;
    const bool cut = section == all.last_section && all.split.last_pieces > 1;
    for (int32_t i = 0; i < (cut ? all.items.per_last : all.items.per_list); ++i)
      for (int32_t head = 0; head < heads; ++head) {
        const BackwardWork& item = all.items.work[list + static_cast<size_t>(i)];
        const size_t tile = static_cast<size_t>(item.key_tile + (cut ? all.key_tiles : 0));
        const bool part = all.items.key_tiles[tile].parts > 1;
        const double time = time_of(all, item) + tuned::kItemEnds + (part ? tuned::kPartSums : 0);
        const double end = free_at.top() + time;
        free_at.pop();
        free_at.push(end);
        result.end = std::max(result.end, end);
        result.balanced += time / static_cast<double>(workers_of(all));
      }
  }
  return result;
}

// Only the end is simulated to price a split, so planning is fast. It has to tell the time of the whole.
TEST(BackwardSplit, HasAPriceThatIsTheTimeOfAllItems) {
  for (const std::string_view name : dense_patterns())
    for (const int64_t seqlen : {2048, 4096, 8192, 32768}) {
      const Problem problem = problem_of(name, seqlen);
      BackwardShape shape = choose_backward_shape(problem);
      shape.pass_ctas = 0;
      const BackwardGrid grid = lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned);
      const BackwardColumns columns = columns_of(grid.map, 1);
      for (const BackwardSplit& split : split_candidates(problem, shape, columns, kUnits)) {
        shape.split = split;
        const double price = time_of_split(problem, shape, columns, split, kUnits),
                     time = simulate(arrange_backward(problem, shape, kUnits)).end;
        EXPECT_GT(price, 0.95 * time)
            << name << " " << seqlen << " " << split.parts << " " << split.most_tiles;
        // CTAs that drift apart cost, too: eight heads are three doublings; and rows that L2 does not hold.
        const double drift = 3 * tuned::kDrift + (split.walk.by_rows ? tuned::kByRows : 0);
        const double most = split.group_items > 0 ? 1.16 * (1 + drift) : 1.4;
        EXPECT_LT(price, most * time)
            << name << " " << seqlen << " " << split.parts << " " << split.most_tiles;
      }
    }
}

TEST(BackwardSplit, IsPlannedWhereNoRowSeesAKey) {
  for (const bool deterministic : {false, true})
    for (const int64_t head_dim : {64, 128, 256}) {
      Problem problem = problem_of("full", 300, deterministic);
      problem.masks = std::make_shared<const HeadMasks>(HeadMasks{Mask(300, 300, std::vector<Band>{})});
      problem.head_dim = head_dim;
      for (const BackwardWork& item : arranged(problem).items.work) EXPECT_EQ(item.runs, 0);
    }
}

// Wave quantization: 256 equal items are two rounds of 132 CTAs, 320 are three, and 640 five.
TEST(BackwardSplit, IsTheFastestCandidateWhereNothingElseCounts) {
  for (const char* name : {"full", "sliding_window"})
    for (const int64_t seqlen : {2048, 2560, 4096, 8192, 16384, 32768, 49152}) {
      const Problem problem = problem_of(name, seqlen);
      BackwardShape shape = choose_backward_shape(problem);
      shape.pass_ctas = 0, shape.any_tile = false;
      const BackwardGrid grid = lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned);
      const double chosen = simulate(arrange_backward(problem, shape, kUnits)).end;
      for (const BackwardSplit& split : split_candidates(problem, shape, columns_of(grid.map, 1), kUnits)) {
        shape.split = split;
        EXPECT_LE(chosen, 1.03 * simulate(arrange_backward(problem, shape, kUnits)).end)
            << name << " " << seqlen << " " << split.parts << " " << split.most_tiles;
      }
    }
}

TEST(BackwardSplit, BalancesItems) {
  for (const std::string_view name : dense_patterns())
    for (const int64_t seqlen : {2048, 4096, 8192, 32768}) {
      const BackwardArrangement all = arranged(problem_of(name, seqlen));
      const double most = seqlen < 4096 ? 1.25 : seqlen < 8192 ? 1.12 : 1.08;
      const Simulated simulated = simulate(all);
      EXPECT_LT(simulated.end, most * simulated.balanced) << name << " " << seqlen;
    }
}

// 94 key tiles of 16 heads are 11.4 rounds of 132 CTAs, and take twelve if no item is cut.
TEST(BackwardSplit, CutsTheLastItemsWhereHeadsDoNotBalanceThem) {
  for (const auto& [heads_q, heads_kv] : {std::pair{16, 16}, {40, 8}, {56, 8}, {64, 8}}) {
    Problem problem = problem_of("full", 12000);
    problem.heads_q = heads_q, problem.heads_kv = heads_kv;
    const BackwardArrangement all = arranged(problem);
    EXPECT_GT(all.split.last_pieces, 1) << heads_q;
    const Simulated cut = simulate(all);
    EXPECT_LT(cut.end, 1.03 * cut.balanced) << heads_q;
    BackwardShape shape = choose_backward_shape(problem);
    shape.split = all.split;
    shape.split->last_pieces = 1;
    EXPECT_LT(cut.end, 0.98 * simulate(arrange_backward(problem, shape, kUnits)).end) << heads_q;
  }
}

// Items of several heads, as cuts have, would read rows again that L2 holds for one head.
TEST(BackwardSplit, CutsNothingWhereL2HoldsTheRowsOfOneHead) {
  EXPECT_EQ(arranged(problem_of("full", 32768)).split.last_pieces, 1);
  EXPECT_EQ(arranged(problem_of("full", 49152)).split.last_pieces, 1);
}

TEST(BackwardSplit, KeepsItemsOfSeveralHeadsBelowTheirLimit) {
  for (const std::string_view name : dense_patterns())
    for (const int64_t seqlen : {2048, 8192, 32768})
      for (const bool deterministic : {false, true}) {
        const BackwardArrangement all = arranged(problem_of(name, seqlen, deterministic));
        if (all.split.most_tiles == 0) continue;
        for (const BackwardWork& item : all.items.work)
          if (item.heads > 1) {
            ASSERT_LE(tiles_of(all, item), all.split.most_tiles) << name << " " << seqlen;
          }
      }
}

// The rows of most KV heads together are more than L2 holds: causal 8K with 32:8 heads lost a fifth of its
// rate.
TEST(BackwardSplit, WorksOnFewKvHeadsTogetherAtTheEndOfCausalMasks) {
  for (const int64_t heads_q : {16, 24, 32, 40, 64})
    for (const int64_t head_dim : {64, 128})
      for (const int64_t seqlen : {8192, 12288, 16384}) {
        Problem problem = problem_of("causal", seqlen);
        problem.heads_q = heads_q, problem.head_dim = head_dim;
        const BackwardArrangement all = arranged(problem);
        EXPECT_LE(all.heads_of(all.last_section), problem.heads_kv / 2)
            << heads_q << " heads of " << head_dim << ", " << seqlen;
      }
}

// Items of four heads would balance as well, but CTAs drift apart and L2 cannot hold the rows of them all.
TEST(BackwardSplit, HasItemsOfFewHeadsInShortCausalMasks) {
  for (const int64_t head_dim : {128, 256})
    for (const int64_t seqlen : {2048, 3072}) {
      Problem problem = problem_of("causal", seqlen);
      problem.head_dim = head_dim;
      EXPECT_GE(split_of(problem).parts, 4) << head_dim << " " << seqlen;
    }
}

// CTAs that work on neighbouring keys find the same rows in L2.
TEST(BackwardSplit, HandsOutNeighbouringKeysTogetherInWindowsAndLongDocuments) {
  for (const char* name : {"sliding_window", "sliding_window_causal", "causal_document", "full_document"})
    for (const int64_t seqlen : {16384, 32768}) {
      const BackwardArrangement all = arranged(problem_of(name, seqlen));
      EXPECT_EQ(all.split.order, KeyOrder::kByKeys) << name << " " << seqlen;
      EXPECT_EQ(all.split.group_items, kUnits) << name << " " << seqlen;
    }
}

// CTAs of a causal document's key tiles then come to each row at the same time.
TEST(BackwardSplit, TakesAllHeadsOfARowTogetherInCausalDocuments) {
  const auto walk_of = [](std::string_view name, const char* lengths, int64_t heads_q = 64) {
    PatternOptions options;
    options.seqlen = 20000;
    options.lengths = lengths;
    return split_of(drawn_problem(name, options, heads_q, 8)).walk;
  };
  const BackwardWalk by_heads, down_by_rows{.descending = true, .by_rows = true};
  for (const char* lengths : {"uniform:128:256", "uniform:100:400", "uniform:500:1500", "uniform:1000:3000"})
    EXPECT_EQ(walk_of("causal_document", lengths), down_by_rows) << lengths;
  EXPECT_EQ(walk_of("causal_document", "uniform:20:120"), by_heads);  // tiles hold several documents
  EXPECT_EQ(walk_of("full_document", "uniform:100:400"), by_heads);
  EXPECT_EQ(walk_of("causal_document", "uniform:100:400", 32), down_by_rows);
  EXPECT_EQ(walk_of("causal_document", "uniform:100:400", 24), by_heads);  // three heads stay together anyway
  PatternOptions window;
  window.seqlen = 20000;
  window.values.set("window", TokenPair{127, {}});
  EXPECT_EQ(split_of(drawn_problem("sliding_window_causal", window, 64, 8)).walk, by_heads);
}

// An item of the question that all answers see would be longer than a CTA's share.
TEST(BackwardSplit, SplitsKeysThatFarMoreRowsSeeThanOthers) {
  for (const int64_t seqlen : {4096, 8192, 32768}) {
    const BackwardArrangement all = arranged(problem_of("share_question", seqlen));
    int64_t longest = 0, tiles = 0;
    for (int32_t i = 0; i < all.items.per_list; ++i) {
      const int64_t of_item = tiles_of(all, all.items.work[static_cast<size_t>(i)]);
      longest = std::max(longest, of_item), tiles += of_item;
    }
    EXPECT_LT(longest, tiles * 8 / workers_of(all)) << seqlen;
    EXPECT_TRUE(all.items.shared) << seqlen;
  }
}

TEST(BackwardSplit, DividesTheGroupWhateverItIs) {
  for (const int64_t heads_q : {8, 24, 40, 56, 64})
    for (const char* name : {"causal", "causal_document", "full_document", "sliding_window",
                             "block_causal_document", "uniform_block_sparse"})
      for (const int64_t seqlen : {1024, 2048, 6144})
        for (const bool deterministic : {false, true}) {
          Problem problem = problem_of(name, seqlen, deterministic);
          problem.heads_q = heads_q;
          EXPECT_EQ(problem.group_size() % split_of(problem).parts, 0)
              << name << " " << seqlen << " " << heads_q;
        }
}

// ---- deterministic: additions in order --------------------------------------------------------------------

// Simulated time, over the time in which no CTA waits: the cost by which arrange_backward chooses.
double cost_of(const Problem& problem, const BackwardSplit& split) {
  BackwardShape shape = choose_backward_shape(problem);
  shape.split = split;
  const BackwardArrangement all = arrange_backward(problem, shape, kUnits);
  return time_walk(all.grid.map, std::span(all.items.work).first(static_cast<size_t>(all.items.per_list)),
                   split.walk, {.sections = all, .workers = static_cast<int32_t>(kUnits)});
}

TEST(BackwardSplit, IsNextToTheCheapestCandidateInOrder) {
  for (const char* name : {"full_document", "causal_document", "share_question", "prefix_lm_document",
                           "causal_blockwise", "sliding_window", "sliding_window_causal"})
    for (const int64_t seqlen : {2048, 8192, 32768}) {
      const Problem problem = problem_of(name, seqlen, true);
      const BackwardShape shape = choose_backward_shape(problem);
      const BackwardGrid grid = lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned);
      const std::vector<BackwardSplit> candidates =
          split_candidates(problem, shape, columns_of(grid.map, 1), kUnits);
      double best = std::numeric_limits<double>::infinity();
      for (const BackwardSplit& candidate : candidates) {
        ASSERT_FALSE(candidate.by_time) << "another simulation prices these";
        best = std::min(best, cost_of(problem, candidate));
      }
      const BackwardSplit chosen = split_of(problem);
      EXPECT_THAT(candidates, testing::Contains(chosen)) << name << " " << seqlen;
      EXPECT_LE(cost_of(problem, chosen), 1.0001 * best / tuned::kBetter) << name << " " << seqlen;
    }
}

// Blocks: by time, in items of as many heads as L2 holds rows of; of short columns, several.
TEST(BackwardSplit, GivesBlocksInOrderItemsOfSeveralHeadsWhereL2HoldsTheirRows) {
  const auto blocks = [](int64_t seqlen, int64_t block) {
    PatternOptions options;
    options.seqlen = seqlen;
    options.kv_heads = 8;
    options.values.set("block", block);
    options.values.set("density", 0.05);
    Problem problem = drawn_problem("uniform_block_sparse", options, 64, 8);
    problem.deterministic = true;
    return problem;
  };
  const auto parts = [&](int64_t seqlen, int64_t block) {
    const Problem problem = blocks(seqlen, block);
    const BackwardShape shape = choose_backward_shape(problem);
    const BackwardGrid grid = lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned);
    std::vector<int32_t> result;
    for (const BackwardSplit& split : split_candidates(problem, shape, columns_of(grid.map, 8), kUnits)) {
      EXPECT_TRUE(split.by_time);
      result.push_back(split.parts);
    }
    return result;
  };
  EXPECT_EQ(parts(8192, 128), (std::vector{8, 4, 2, 1}));
  EXPECT_EQ(parts(32768, 128), (std::vector{8, 4}));
  EXPECT_EQ(parts(8192, 64), (std::vector{8, 4, 2}));
  EXPECT_EQ(parts(32768, 64), (std::vector{8}));
  EXPECT_LT(split_of(blocks(8192, 128)).parts, 8);
}

// Parts of a key tile wait for each other's dk and dv. Causal masks take two where the rows of whole groups
// would not be in L2.
TEST(BackwardSplit, TakesWholeGroupsInOrderWhereThereAreEnough) {
  for (const char* name : {"full", "sliding_window", "block_causal_document"})
    for (const int64_t seqlen : {8192, 32768})
      EXPECT_EQ(split_of(problem_of(name, seqlen, true)).parts, 1) << name << " " << seqlen;
  EXPECT_EQ(split_of(problem_of("causal", 16384, true)).parts, 2);
}

// From the last row up if more columns end with the last row than begin with the first one.
TEST(BackwardSplit, BeginsItemsInOrderWhereColumnsMeet) {
  for (const std::string_view name : dense_patterns())
    for (const int64_t seqlen : {2048, 8192, 49152}) {
      const Problem problem = problem_of(name, seqlen, true);
      const BackwardShape shape = choose_backward_shape(problem);
      if (shape.kind != BackwardKind::kLong) continue;
      const BackwardGrid grid = lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned);
      const BackwardColumns columns = columns_of(grid.map, 1);
      EXPECT_EQ(split_of(problem).walk.descending, columns.end_together > columns.begin_together)
          << name << " " << seqlen;
    }
}

// All columns of causal_blockwise end with the rows of the last block, which sees everything. With one head
// at a time there would be one queue of additions.
TEST(BackwardSplit, WorksOnSeveralHeadsWhereAllColumnsEndTogether) {
  for (const int64_t seqlen : {4096, 8192, 32768})
    EXPECT_GT(arranged(problem_of("causal_blockwise", seqlen, true)).section_heads, 1) << seqlen;
}

}  // namespace
}  // namespace longspan::sm90
