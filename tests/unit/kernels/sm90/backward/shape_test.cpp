#include "kernels/sm90/backward/planner/shape.h"

#include <memory>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/backward/planner/choose_split.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"

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

BackwardShape shape_of(const char* name, int64_t seqlen, bool deterministic = false, int64_t block = 0,
                       int64_t head_dim = 128) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = 8;
  if (block > 0) options.values.set("block", block);
  Problem problem = problem_of(seqlen, 64, 8);
  problem.masks = std::make_shared<const HeadMasks>(draw_mask(name, options).masks);
  problem.deterministic = deterministic;
  problem.head_dim = head_dim;
  return choose_backward_shape(problem);
}

TEST(BackwardShape, TellsKindsOfMasksApart) {
  using enum BackwardKind;
  EXPECT_EQ(shape_of("full", 8192).kind, kLong);
  EXPECT_EQ(shape_of("causal", 8192).kind, kLong);
  EXPECT_EQ(shape_of("causal", 2048).kind, kOneBand);
  EXPECT_EQ(shape_of("sliding_window", 32768).kind, kOneBand);
  EXPECT_EQ(shape_of("causal_document", 32768).kind, kBands);
  EXPECT_EQ(shape_of("full_document", 12000).kind, kBands);  // a mean key is seen by 2,067 rows
  EXPECT_EQ(shape_of("full_document", 12000, true).kind, kLong);
  EXPECT_EQ(shape_of("full_document", 12000, false, 0, 64).kind, kBands);
  EXPECT_EQ(shape_of("full_document", 12000, false, 0, 256).kind, kLong);
  EXPECT_EQ(shape_of("share_question", 8192).kind, kBands);
  EXPECT_EQ(shape_of("prefix_lm_causal", 2048).kind, kBands);
  EXPECT_EQ(shape_of("prefix_lm_causal", 2048, true).kind, kLong);  // half of all is visible
  EXPECT_EQ(shape_of("share_question", 2048, true).kind, kBands);
  EXPECT_EQ(shape_of("block_causal_document", 8192).kind, kBlocks);
  EXPECT_EQ(shape_of("uniform_block_sparse", 8192, false, 128).kind, kScattered);
  EXPECT_EQ(shape_of("variable_block_sparse", 8192, false, 256).kind, kScattered);
}

TEST(BackwardShape, LetsTilesBeginAnywhereWhereBandsDo) {
  PatternOptions options;
  options.seqlen = 8192;
  for (const bool documents : {false, true}) {
    Problem problem = problem_of(8192, 64, 8);
    if (documents)
      problem.masks = std::make_shared<const HeadMasks>(draw_mask("causal_document", options).masks);
    EXPECT_EQ(choose_backward_shape(problem).in_rows, documents);
    EXPECT_EQ(choose_backward_shape(problem).aligned, documents);
    problem.deterministic = true;
    EXPECT_EQ(choose_backward_shape(problem).in_rows, documents);
    problem.head_dim = 64;  // has no other instance
    EXPECT_TRUE(choose_backward_shape(problem).in_rows);
  }
}

// Windows up to a very long mask and other short bands, with sums in token rows, which passes inside need.
TEST(BackwardShape, LeavesPassesOfOneBandToPassCtasWhereThatPays) {
  const auto with_passes = [](const BackwardShape& shape) {
    EXPECT_EQ(shape.pass_ctas, shape.in_rows ? kAsSuits : 0);
    EXPECT_EQ(shape.aligned, shape.in_rows);
    return shape.in_rows;
  };
  for (const int64_t seqlen : {4096, 8192, 16384, 32768, 49152}) {
    EXPECT_TRUE(with_passes(shape_of("sliding_window_causal", seqlen))) << seqlen;
    EXPECT_TRUE(with_passes(shape_of("sliding_window", seqlen))) << seqlen;
    EXPECT_FALSE(with_passes(shape_of("sliding_window_causal", seqlen, true))) << seqlen;
  }
  EXPECT_TRUE(with_passes(shape_of("sliding_window_causal", 2048)));
  EXPECT_FALSE(with_passes(shape_of("sliding_window", 2048)));  // half of all is visible
  EXPECT_TRUE(with_passes(shape_of("causal", 2048)));
  EXPECT_FALSE(with_passes(shape_of("causal", 4096)));
  EXPECT_EQ(shape_of("sliding_window_causal", 8192, false, 0, 64).pass_ctas, 0);
  Problem other = problem_of(8192, 64, 8);
  for (const int64_t sides : {128, 1024, 4096}) {
    const Band band{{0, 8192}, {0, 8192}, -sides, sides};
    other.masks = std::make_shared<const HeadMasks>(HeadMasks{Mask(8192, 8192, std::vector<Band>{band})});
    EXPECT_EQ(with_passes(choose_backward_shape(other)), sides < 4096) << sides;
  }
  for (const Band& band : {Band{{0, 4096}, {0, 3000}, kUnboundedBelow, kUnboundedAbove},  // no window
                           Band{{0, 4096}, {0, 4096}, kUnboundedBelow, 0}}) {
    other.masks = std::make_shared<const HeadMasks>(HeadMasks{Mask(8192, 8192, std::vector<Band>{band})});
    EXPECT_TRUE(with_passes(choose_backward_shape(other)));
  }
  Problem partial = problem_of(8192, 64, 8);
  PatternOptions options;
  options.seqlen = 8192;
  partial.masks = std::make_shared<const HeadMasks>(draw_mask("sliding_window_causal", options).masks);
  partial.fp32_output = true;  // other ranks' sums are to be added, so the kernel cannot do the passes
  EXPECT_TRUE(choose_backward_shape(partial).in_rows);
  EXPECT_EQ(choose_backward_shape(partial).pass_ctas, 0);
}

TEST(BackwardShape, AddsInOrderForTheSameBits) {
  Problem problem = problem_of(1024, 64, 8);
  problem.deterministic = true;
  const BackwardShape shape = choose_backward_shape(problem);
  EXPECT_EQ(shape.store, BackwardStore::kOrdered);
}

// Zeros cost a pass over dq. They pay in long columns, and if half of a short square is visible.
TEST(BackwardShape, BeginsWithZerosWhereThatPays) {
  using enum BackwardStore;
  EXPECT_EQ(shape_of("full", 2048).store, kAdded);
  EXPECT_EQ(shape_of("full", 1024).store, kAdded);
  EXPECT_EQ(shape_of("causal", 2048).store, kClaimed);
  EXPECT_EQ(choose_backward_shape(problem_of(2048, 16, 16)).store, kAdded);  // L2 holds all rows
  EXPECT_EQ(shape_of("causal", 4096).store, kAdded);
  EXPECT_EQ(shape_of("sliding_window", 2048).store, kAdded);
  EXPECT_EQ(shape_of("sliding_window", 8192).store, kClaimed);
  EXPECT_EQ(shape_of("full_document", 8192).store, kClaimed);
  EXPECT_EQ(shape_of("full_document", 2048).store, kClaimed);
  EXPECT_EQ(shape_of("full_document", 8192, false, 0, 64).store, kClaimed);
  EXPECT_EQ(shape_of("causal_document", 8192).store, kClaimed);
  EXPECT_EQ(shape_of("uniform_block_sparse", 8192, false, 128).store, kClaimed);
  EXPECT_EQ(shape_of("full", 8192, true).store, kOrdered);
}

TEST(BackwardShape, TakesTallTilesForLongColumns) {
  for (const bool same_bits : {false, true}) {
    EXPECT_EQ(shape_of("full", 4096, same_bits).rows, h200::backward::kTallRows);
    EXPECT_EQ(shape_of("causal", 8192, same_bits).rows, h200::backward::kTallRows);
    EXPECT_EQ(shape_of("causal_document", 8192, same_bits).rows, 64);
    EXPECT_EQ(shape_of("block_causal_document", 8192, same_bits).rows, 64);
  }
  EXPECT_EQ(shape_of("full", 1024).rows, 64);
  EXPECT_EQ(shape_of("full", 2048).rows, h200::backward::kTallRows);
  EXPECT_EQ(shape_of("causal", 3072).rows, 64);  // a mean key has as many rows as in full 1,536
  EXPECT_EQ(shape_of("causal", 4096).rows, h200::backward::kTallRows);
  EXPECT_EQ(shape_of("sliding_window", 8192).rows, 64);
  EXPECT_EQ(shape_of("causal", 3072, true).rows, h200::backward::kTallRows);
  EXPECT_EQ(shape_of("sliding_window", 8192, true).rows, h200::backward::kTallRows);
  EXPECT_EQ(shape_of("full", 8192).section_units, h200::backward::kVeryLongSectionUnits);
  EXPECT_EQ(shape_of("full", 2048).section_units, 0);
  EXPECT_EQ(shape_of("full", 16384, false, 0, 64).section_units, h200::backward::kVeryLongSectionUnits);
}

// Two items' heads at a time, or one's where L2 does not hold the rows of both.
TEST(BackwardShape, WorksOnAsManyHeadsAsL2Holds) {
  const auto heads_at_once = [](int64_t tokens, int32_t parts) {
    const Problem problem = problem_of(tokens, 64, 8);
    const BackwardShape shape = choose_backward_shape(problem);
    return sharing_of(problem, shape, {.parts = parts}, tokens / 128, 132).heads_at_once;
  };
  EXPECT_EQ(heads_at_once(8192, 4), 4);
  EXPECT_EQ(heads_at_once(8192, 8), 2);
  EXPECT_EQ(heads_at_once(16384, 4), 2);
  EXPECT_EQ(heads_at_once(32768, 8), 1);
}

// Tiles of 192 keys for long masks, documents and windows, of 128 by 128 for other short masks and blocks.
// Sums of dq lie as threads hold them but where row tiles may begin anywhere.
TEST(BackwardShape, TakesLargerTilesAtHeadDim64) {
  constexpr TileShape kWide{h200::backward::kWidestKeys, 64}, kSquare{128, h200::backward::kTallestRows},
      kOther{128, 64};
  const auto at_64 = [](const char* name, int64_t seqlen, bool deterministic = false, int64_t block = 0) {
    return shape_of(name, seqlen, deterministic, block, 64);
  };
  for (const int64_t seqlen : {1024, 4096, 32768}) {
    for (const char* name : {"full", "causal"}) {
      const bool is_long = at_64(name, seqlen).kind == BackwardKind::kLong;
      EXPECT_EQ(at_64(name, seqlen).tile_shape(), is_long ? kWide : kSquare) << name << seqlen;
      EXPECT_FALSE(at_64(name, seqlen).in_rows) << name << seqlen;
      EXPECT_FALSE(at_64(name, seqlen).aligned) << name << seqlen;
    }
    for (const char* name : {"full_document", "causal_document", "share_question"}) {
      EXPECT_EQ(at_64(name, seqlen).tile_shape(), kWide) << name << seqlen;
      EXPECT_EQ(at_64(name, seqlen).pass_ctas, 0) << name << seqlen;
    }
    for (const char* name : {"full", "causal_document", "sliding_window"}) {
      EXPECT_EQ(at_64(name, seqlen, true).tile_shape(), kOther) << name << seqlen;  // in order
      EXPECT_TRUE(at_64(name, seqlen, true).in_rows) << name << seqlen;
    }
  }
  for (const int64_t seqlen : {4096, 32768})
    for (const char* name : {"sliding_window", "sliding_window_causal"}) {
      EXPECT_EQ(at_64(name, seqlen).tile_shape(), kWide) << name << seqlen;
      EXPECT_TRUE(at_64(name, seqlen).in_rows) << name << seqlen;
      EXPECT_EQ(other_tile(at_64(name, seqlen)).tile_shape(), kOther) << name << seqlen;
      EXPECT_TRUE(other_tile(at_64(name, seqlen)).in_rows) << name << seqlen;
    }
  EXPECT_EQ(at_64("causal", 4096).tile_shape(), kWide);
  EXPECT_EQ(at_64("causal", 2048).tile_shape(), kSquare);
  EXPECT_TRUE(at_64("causal_document", 32768).in_rows);
  EXPECT_TRUE(at_64("causal_document", 32768).aligned);
  EXPECT_EQ(at_64("block_causal_document", 8192).tile_shape(), kSquare);
  EXPECT_EQ(at_64("uniform_block_sparse", 8192, false, 128).tile_shape(), kSquare);
  EXPECT_EQ(at_64("uniform_block_sparse", 8192, false, 64).tile_shape(), (TileShape{64, 64}));
  EXPECT_EQ(at_64("variable_block_sparse", 8192, false, 256).tile_shape(), kOther);

  Problem problem = problem_of(8192, 64, 8);
  problem.head_dim = 64;
  BackwardShape shape = choose_backward_shape(problem);
  EXPECT_EQ(shape.tile_shape(), kWide);
  shape.in_rows = true;
  EXPECT_FALSE(can_do_passes(problem, shape));
  problem.same_launches = true;
  EXPECT_EQ(choose_backward_shape(problem).tile_shape(), kWide);
  problem.dtype = DType::kF16;
  EXPECT_EQ(choose_backward_shape(problem).tile_shape(), kOther);
  problem.same_launches = false;
  EXPECT_EQ(choose_backward_shape(problem).tile_shape(), kOther);
}

// Launches must not tell blocks from other masks.
TEST(BackwardShape, HasOneTileForAllMasksOfTheSameLaunches) {
  for (const int64_t head_dim : {64, 128, 256})
    for (const bool deterministic : {false, true}) {
      Problem problem = problem_of(4096, 8, 8);
      problem.head_dim = head_dim, problem.deterministic = deterministic, problem.same_launches = true;
      const BackwardShape of_full = choose_backward_shape(problem);
      PatternOptions options;
      options.seqlen = 4096, options.kv_heads = 8;
      for (const char* name : {"uniform_block_sparse", "causal_document", "sliding_window"}) {
        problem.masks = std::make_shared<const HeadMasks>(draw_mask(name, options).masks);
        const BackwardShape shape = choose_backward_shape(problem);
        EXPECT_EQ(shape.tile_shape(), of_full.tile_shape()) << name;
        EXPECT_EQ(shape.in_rows, of_full.in_rows) << name;
        EXPECT_EQ(shape.store, of_full.store) << name;
      }
    }
}

// CTA pairs that share 128 keys, whatever the mask.
TEST(BackwardShape, HasOneTileAboveHeadDim128) {
  PatternOptions options;
  options.seqlen = 8192, options.kv_heads = 8;
  for (const char* name : {"full", "causal_document", "sliding_window", "uniform_block_sparse"}) {
    Problem problem = problem_of(8192, 64, 8);
    problem.masks = std::make_shared<const HeadMasks>(draw_mask(name, options).masks);
    for (const int64_t head_dim : {192, 256}) {
      problem.head_dim = head_dim, problem.head_dim_v = head_dim == 192 ? 128 : 0;
      for (const bool deterministic : {false, true}) {
        problem.deterministic = deterministic;
        const BackwardShape shape = choose_backward_shape(problem);
        EXPECT_TRUE(shape.large && !shape.in_rows) << name;
        EXPECT_EQ(shape.tile_shape(), (TileShape{128, 64})) << name;
        EXPECT_EQ(shape.streams(), 1) << name;
        EXPECT_EQ(shape.ctas(), 2) << name;
        EXPECT_EQ(shape.workers(132), 66) << name;
        EXPECT_EQ(shape.workers(1), 1) << name;
        EXPECT_EQ(shape.store, deterministic ? BackwardStore::kOrdered : BackwardStore::kAdded) << name;
        const BackwardArrangement all = arrange_backward(problem, shape, 132);
        EXPECT_EQ(all.pass_ctas, 0) << name;
        EXPECT_EQ(all.schedule.streams, 0) << name;
      }
    }
  }
}

TEST(BackwardShape, MatchesBlocksOf64) {
  Problem problem = problem_of(4096, 4, 4);
  PatternOptions options;
  options.seqlen = 4096;
  options.kv_heads = 4;
  for (const int block : {64, 128}) {
    options.values.set("block", block);
    problem.masks = std::make_shared<const HeadMasks>(draw_mask("uniform_block_sparse", options).masks);
    EXPECT_EQ(choose_backward_shape(problem).tile_shape(), (TileShape{block, 64}));
    EXPECT_EQ(choose_backward_shape(problem).section_units, h200::backward::kScatteredSectionUnits);
  }
  options.values.set("block", 64);
  for (const auto& [density, keys] : {std::pair{0.5, 64}, {0.8, 128}, {1.0, 128}}) {
    options.values.set("density", density);
    problem.masks = std::make_shared<const HeadMasks>(draw_mask("uniform_block_sparse", options).masks);
    EXPECT_EQ(choose_backward_shape(problem).keys, keys) << density;
    problem.deterministic = true;
    EXPECT_EQ(choose_backward_shape(problem).keys, keys) << density << ", the same bits";
    problem.deterministic = false;
  }
}

// As long as a schedule of tiles of 64 keys is small enough; without one their additions would stall.
TEST(BackwardShape, AddsInOrderFromTilesOf64KeysWhereItCanBeScheduled) {
  PatternOptions options;
  options.seqlen = 16384;
  options.kv_heads = 2;
  options.values.set("block", 64);
  options.values.set("density", 0.5);
  Problem problem = problem_of(options.seqlen, 2, 2);
  problem.deterministic = true;
  problem.masks = std::make_shared<const HeadMasks>(draw_mask("uniform_block_sparse", options).masks);
  const BackwardShape shape = choose_backward_shape(problem);
  EXPECT_EQ(shape.store, BackwardStore::kOrdered);
  EXPECT_EQ(shape.keys, 64);
  EXPECT_FALSE(shape.in_rows);
  EXPECT_GT(arrange_backward(problem, shape, 132).schedule.streams, 132);
  problem.heads_q = 2 * (h200::backward::kMaxScheduledVisits * 64 * 64 / problem.area() + 1);
  EXPECT_EQ(choose_backward_shape(problem).keys, 128);
  EXPECT_TRUE(choose_backward_shape(problem).in_rows);
  problem.deterministic = false;
  EXPECT_EQ(choose_backward_shape(problem).keys, 64);
}

// With several bands in one mask, sums in token rows, and additions in any order.
TEST(BackwardShape, LeavesPassesToPassCtasInDocuments) {
  for (const char* name : {"causal_document", "full_document", "share_question", "prefix_lm_document"}) {
    EXPECT_EQ(shape_of(name, 32768).pass_ctas, kAsSuits) << name;
    EXPECT_EQ(shape_of(name, 32768, true).pass_ctas, 0) << name;
  }
  for (const char* name : {"full", "causal", "block_causal_document"})
    EXPECT_EQ(shape_of(name, 32768).pass_ctas, 0) << name;
  EXPECT_EQ(shape_of("uniform_block_sparse", 8192, false, 64).pass_ctas, 0);
  EXPECT_EQ(shape_of("uniform_block_sparse", 8192, false, 128).pass_ctas, 0);

  Problem problem = problem_of(2048, 4, 2);
  BackwardShape shape = choose_backward_shape(problem);
  EXPECT_FALSE(can_do_passes(problem, shape));  // sums as threads hold them
  shape.in_rows = true, shape.rows = 64;
  for (const BackwardStore store : {BackwardStore::kAdded, BackwardStore::kClaimed}) {
    shape.store = store;
    EXPECT_TRUE(can_do_passes(problem, shape));
  }
  shape.store = BackwardStore::kOrdered;
  EXPECT_FALSE(can_do_passes(problem, shape));
  shape.store = BackwardStore::kAdded;
  problem.fp32_output = true;
  EXPECT_FALSE(can_do_passes(problem, shape));
}

}  // namespace
}  // namespace longspan::sm90
