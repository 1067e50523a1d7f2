// The divisions that were measured to be faster, of the masks and lengths that they were measured with.
#include "kernels/sm90/backward/planner/choose_split.h"

#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "mask/patterns/patterns.h"
#include "unit/kernels/sm90/drawn_problem.h"

namespace longspan::sm90 {
namespace {

using testing::ElementsAre;
using enum KeyOrder;

constexpr int64_t kUnits = 132;
// From the first row on, or the last one.
constexpr BackwardWalk kUp, kUpByRows{false, true}, kDown{true, false}, kDownByRows{true, true};

Problem problem_of(std::string_view name, int64_t seqlen, bool deterministic = false, int64_t heads_kv = 8) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = heads_kv;
  Problem problem = drawn_problem(name, options, 64, heads_kv);
  problem.deterministic = deterministic;
  return problem;
}

// Those that take items.
int32_t workers_of(const Problem& problem) {
  return static_cast<int32_t>(kUnits) -
         arrange_backward(problem, choose_backward_shape(problem), kUnits).pass_ctas;
}

BackwardSplit split_of(const Problem& problem) {
  return arrange_backward(problem, choose_backward_shape(problem), kUnits).split;
}

TEST(BackwardSplit, TakesItemsOfAQueryHeadOrTwoWhereColumnsAreLong) {
  for (const char* name : {"causal", "prefix_lm_causal", "global_sliding_window"}) {
    EXPECT_EQ(split_of(problem_of(name, 32768)), (BackwardSplit{.parts = 8, .last_rounds = 0})) << name;
    EXPECT_EQ(split_of(problem_of(name, 8192)), (BackwardSplit{.parts = 4, .last_rounds = 0})) << name;
    EXPECT_EQ(split_of(problem_of(name, 4096)), (BackwardSplit{.parts = 4, .last_rounds = 2})) << name;
  }
  EXPECT_EQ(split_of(problem_of("causal", 8192, false, 64)).parts, 1);
}

// Of items that are all alike, the last round takes as long as any: 256 of them are two rounds of 132 blocks,
// 320 are three, and 640 five.
TEST(BackwardSplit, FillsTheLastRoundWhereColumnsAreAlike) {
  for (const auto& [seqlen, parts] :
       {std::pair{2048, 2}, {2560, 4}, {4096, 2}, {8192, 2}, {16384, 8}, {32768, 8}})
    EXPECT_EQ(split_of(problem_of("full", seqlen)).parts, parts) << seqlen;
}

TEST(BackwardSplit, HasEnoughItemsForAllBlocks) {
  for (const auto& [name, parts] : {std::pair{"causal", 4}, {"share_question", 4}, {"causal_document", 2}}) {
    const BackwardSplit split = split_of(problem_of(name, 2048));
    EXPECT_EQ(split.parts, parts) << name;
    EXPECT_EQ(split.order, kByKeys) << name;
    EXPECT_EQ(split.last_rounds, 2) << name;
  }
}

TEST(BackwardSplit, GoesByPlacesInWindows) {
  EXPECT_EQ(split_of(problem_of("sliding_window", 4096)).parts, 4);
  EXPECT_EQ(split_of(problem_of("sliding_window", 4096)).most_tiles, 39);
  for (const auto& [seqlen, parts] : {std::pair{8192, 2}, {16384, 2}, {32768, 1}}) {
    const Problem problem = problem_of("sliding_window", seqlen);
    EXPECT_EQ(split_of(problem).parts, parts) << seqlen;
    EXPECT_EQ(split_of(problem).most_tiles, 0) << seqlen;  // of whole groups
    EXPECT_EQ(split_of(problem).group_items, workers_of(problem)) << seqlen;
  }
}

TEST(BackwardSplit, TakesHalvesOfGroupsThroughDocumentsOrAllOfThem) {
  BackwardSplit few{.most_tiles = 160, .order = kHeaviestFirst, .group_items = 32, .last_rounds = 2};
  for (const auto& [seqlen, parts] : {std::pair{8192, 4}, {16384, 1}, {32768, 1}, {49152, 1}}) {
    const BackwardSplit full = split_of(problem_of("full_document", seqlen));
    EXPECT_EQ(full.parts, parts) << seqlen;
    EXPECT_EQ(full.most_tiles, 640) << seqlen;
    EXPECT_EQ(full.order, kByKeys) << seqlen;
  }
  EXPECT_EQ(split_of(problem_of("full_document", 2048)), few);
  few.parts = 2;
  EXPECT_EQ(split_of(problem_of("causal_document", 4096)), few);
  EXPECT_EQ(split_of(problem_of("causal_blockwise", 4096)).parts, 4);
  for (const char* name : {"causal_document", "prefix_lm_document", "causal_blockwise"}) {
    EXPECT_EQ(split_of(problem_of(name, 8192)), few) << name;
    const BackwardSplit many = split_of(problem_of(name, 32768));
    EXPECT_EQ(many, (BackwardSplit{.most_tiles = 110,
                                   .order = kByKeys,
                                   .group_items = workers_of(problem_of(name, 32768)),
                                   .last_rounds = 2}))
        << name;
  }
}

// As a question is, which all answers see.
TEST(BackwardSplit, CutsKeysThatFarMoreRowsSeeThanOthers) {
  EXPECT_EQ(
      split_of(problem_of("share_question", 4096)),
      (BackwardSplit{
          .parts = 2, .most_tiles = 160, .order = kHeaviestFirst, .group_items = 32, .last_rounds = 2}));
  EXPECT_EQ(split_of(problem_of("share_question", 8192)),
            (BackwardSplit{.most_tiles = 120,
                           .order = kHeaviestFirst,
                           .group_items = workers_of(problem_of("share_question", 8192)),
                           .last_rounds = 2}));
  EXPECT_EQ(split_of(problem_of("share_question", 32768)).most_tiles, 110);
}

// Heads of an item of such blocks: some 150 tiles, or fewer where blocks have few items.
TEST(BackwardSplit, MeasuresItemsOfNeighbouringBlocks) {
  EXPECT_EQ(split_of(problem_of("block_causal_document", 2048)).parts, 8);
  EXPECT_EQ(split_of(problem_of("block_causal_document", 8192)).parts, 2);
  EXPECT_EQ(split_of(problem_of("block_causal_document", 32768)).parts, 2);
}

// Additions in order: nobody should have to wait.
TEST(BackwardSplit, TakesWholeGroupsInOrder) {
  for (const int64_t seqlen : {2048, 8192, 32768})
    EXPECT_EQ(split_of(problem_of("full", seqlen, true)), (BackwardSplit{.order = kByKeys, .walk = kUp}))
        << seqlen;
  EXPECT_EQ(split_of(problem_of("causal", 8192, true)),
            (BackwardSplit{.order = kByKeys, .walk = kDownByRows}));
  EXPECT_EQ(split_of(problem_of("causal", 4096, true)).parts, 2);
  EXPECT_EQ(split_of(problem_of("causal", 2048, true)).parts, 2);
  EXPECT_EQ(split_of(problem_of("block_causal_document", 4096, true)).parts, 2);
  EXPECT_EQ(split_of(problem_of("block_causal_document", 8192, true)),
            (BackwardSplit{.order = kHeaviestFirst, .walk = kDownByRows}));
  // More columns begin with the first row than end with the last one; or fewer.
  EXPECT_EQ(split_of(problem_of("global_sliding_window", 8192, true)).walk, kUp);
  EXPECT_EQ(split_of(problem_of("prefix_lm_causal", 49152, true)).walk, kDownByRows);
  // Half of all is visible: these are no documents.
  EXPECT_EQ(split_of(problem_of("prefix_lm_causal", 2048, true)),
            (BackwardSplit{.parts = 2, .order = kByKeys, .walk = kDownByRows}));
  EXPECT_EQ(split_of(problem_of("global_sliding_window", 2048, true)),
            (BackwardSplit{.order = kByKeys, .walk = kUp}));
}

// By rows from the first one on, blocks wait for each other in a window that ends at the diagonal, and in
// many rounds.
TEST(BackwardSplit, WalksWindowsInOrderAsNobodyWaits) {
  const auto walk_of = [](const char* name, int64_t seqlen) {
    const BackwardSplit split = split_of(problem_of(name, seqlen, true));
    EXPECT_EQ(split, (BackwardSplit{.order = kByKeys, .group_items = 1, .walk = split.walk}));
    return split.walk;
  };
  EXPECT_EQ(walk_of("sliding_window", 8192), kUpByRows);
  EXPECT_EQ(walk_of("sliding_window", 32768), kDown);
  EXPECT_EQ(walk_of("sliding_window_causal", 8192), kDown);
  EXPECT_EQ(walk_of("sliding_window_causal", 32768), kDown);
}

TEST(BackwardSplit, FindsAnOrderForDocumentsBySimulation) {
  for (const char* name : {"full_document", "causal_document", "share_question", "prefix_lm_document"}) {
    const BackwardSplit split = split_of(problem_of(name, 8192, true));
    EXPECT_EQ(split.order, kHeaviestFirst) << name;
    EXPECT_EQ(split.walk, kDownByRows) << name;
    EXPECT_GE(split.most_tiles, 456) << name;  // which the longest column of a document has
  }
  EXPECT_EQ(split_of(problem_of("share_question", 32768, true)).order, kFromLastKey);
  // From the last key on, rows wait for a question that comes last: nine times the time.
  EXPECT_EQ(split_of(problem_of("prefix_lm_document", 32768, true)).order, kByKeys);
}

TEST(BackwardSplit, CutsItemsOfFewDocumentsInOrderAsIsBest) {
  EXPECT_EQ(split_of(problem_of("full_document", 2048, true)).parts, 1);
  EXPECT_GE(split_of(problem_of("full_document", 2048, true)).most_tiles,
            72);  // as the longest column has
  EXPECT_EQ(split_of(problem_of("causal_blockwise", 2048, true)).parts, 2);
  EXPECT_EQ(split_of(problem_of("share_question", 2048, true)).parts, 2);
}

// All of causal_blockwise' columns end with the rows of the last block, which sees everything.
TEST(BackwardSplit, WorksOnManyHeadsWhereAllColumnsEndTogether) {
  const auto heads = [](const char* name, int64_t seqlen) {
    const Problem problem = problem_of(name, seqlen, true);
    return arrange_backward(problem, choose_backward_shape(problem), kUnits).section_heads;
  };
  EXPECT_EQ(heads("causal_blockwise", 4096), 8);
  EXPECT_EQ(heads("causal_blockwise", 8192), 8);
  EXPECT_EQ(heads("causal_blockwise", 32768), 2);  // four items for each block
  EXPECT_EQ(heads("causal_document", 32768), 1);
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

}  // namespace
}  // namespace longspan::sm90
