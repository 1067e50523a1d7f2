#include "kernels/sm90/backward_shape.h"

#include <memory>

#include <gmock/gmock.h>

#include "mask/patterns.h"

namespace longspan::sm90 {
namespace {

Problem problem_of(int64_t tokens, int64_t heads_q, int64_t heads_kv) {
  PatternOptions options;
  options.seqlen = tokens;
  Problem p;
  p.tokens_q = p.tokens_kv = tokens;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.head_dim = 128;
  p.dtype = DType::kBF16;
  p.masks = std::make_shared<const HeadMasks>(draw_mask("causal", options).masks);
  return p;
}

TEST(BackwardShape, TakesAnItemForEachQueryHeadWhereColumnsAreLong) {
  EXPECT_EQ(choose_backward_shape(problem_of(8192, 64, 8)).parts, 8);
  EXPECT_EQ(choose_backward_shape(problem_of(8192, 12, 4)).parts, 3);
  EXPECT_EQ(choose_backward_shape(problem_of(8192, 8, 8)).parts, 1);
  EXPECT_EQ(choose_backward_shape(problem_of(8192, 64, 8)).most_tiles, 0);
}

// Enough items for all blocks; but ordered ones that share a key tile would wait for each other.
TEST(BackwardShape, GoesByPlacesWhereColumnsAreShort) {
  PatternOptions options;
  for (const auto& [seqlen, parts] : {std::pair{2048, 8}, {8192, 4}, {32768, 1}})
    for (const bool deterministic : {false, true}) {
      Problem problem = problem_of(seqlen, 64, 8);
      problem.deterministic = deterministic;
      options.seqlen = seqlen;
      problem.masks = std::make_shared<const HeadMasks>(draw_mask("sliding_window_causal", options).masks);
      EXPECT_EQ(choose_backward_shape(problem).parts, deterministic ? 1 : parts) << seqlen;
      EXPECT_GT(choose_backward_shape(problem).most_tiles, 0);
    }
}

TEST(BackwardShape, LetsTilesBeginAnywhereWhereBandsDo) {
  PatternOptions options;
  options.seqlen = 8192;
  Problem window = problem_of(8192, 64, 8);
  window.masks = std::make_shared<const HeadMasks>(draw_mask("sliding_window", options).masks);
  EXPECT_FALSE(choose_backward_shape(window).in_rows);
  for (const bool documents : {false, true}) {
    Problem problem = problem_of(8192, 64, 8);
    if (documents)
      problem.masks = std::make_shared<const HeadMasks>(draw_mask("causal_document", options).masks);
    EXPECT_EQ(choose_backward_shape(problem).in_rows, documents);
    EXPECT_EQ(choose_backward_shape(problem).aligned, documents);
    problem.deterministic = true;
    EXPECT_TRUE(choose_backward_shape(problem).in_rows);
  }
}

TEST(BackwardShape, AddsInOrderForTheSameBits) {
  Problem problem = problem_of(1024, 64, 8);
  problem.deterministic = true;
  const BackwardShape shape = choose_backward_shape(problem);
  EXPECT_EQ(shape.store, BackwardStore::kOrdered);
}

TEST(BackwardShape, MatchesBlocksOf64) {
  Problem problem = problem_of(4096, 4, 4);
  PatternOptions options;
  options.seqlen = 4096;
  options.kv_heads = 4;
  for (const int block : {64, 128}) {
    options.block = block;
    problem.masks = std::make_shared<const HeadMasks>(draw_mask("uniform_block_sparse", options).masks);
    EXPECT_EQ(choose_backward_shape(problem).tile_shape(), (TileShape{block, 64}));
    EXPECT_EQ(choose_backward_shape(problem).section_units, 1);
  }
}

}  // namespace
}  // namespace longspan::sm90
