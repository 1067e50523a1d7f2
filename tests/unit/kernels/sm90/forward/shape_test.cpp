#include "kernels/sm90/forward/planner/shape.h"

#include <memory>
#include <tuple>

#include <gmock/gmock.h>

#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

Problem problem_of(std::string_view pattern, PatternOptions options, int64_t heads_q, int64_t heads_kv) {
  options.kv_heads = heads_kv;
  Problem p;
  p.tokens_q = p.tokens_kv = options.seqlen;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.head_dim = 128;
  p.dtype = DType::kBF16;
  p.masks = std::make_shared<const HeadMasks>(draw_mask(pattern, options).masks);
  return p;
}

ForwardShape shape_of(const Problem& problem) {
  Device h200;
  h200.units = 132;
  return choose_forward_shape(problem, h200);
}

PatternOptions of(int64_t seqlen, int64_t block = 0) {
  PatternOptions options;
  options.seqlen = seqlen;
  if (block > 0) options.values.set("block", block);
  return options;
}

TEST(ForwardShape, TakesTallTilesOfFewTokens) {
  const auto tall = [](std::string_view pattern, const PatternOptions& options, int64_t heads_kv) {
    const ForwardShape shape = shape_of(problem_of(pattern, options, 32, heads_kv));
    EXPECT_EQ(shape.columns, shape.warpgroups == 3 ? h200::forward::kTall.columns : 128);
    return shape.warpgroups == 3;
  };
  PatternOptions short_documents = of(8192), window = of(8192), blocks = of(16384, 256);
  short_documents.lengths = "uniform:100:400";
  window.values.set("window", TokenPair{127, 0});
  blocks.values.set("density", 0.5);
  for (const int64_t heads_kv : {4, 8}) {  // 24 and 48 tokens
    for (const char* pattern : {"causal", "sliding_window", "share_question", "causal_blockwise"})
      EXPECT_TRUE(tall(pattern, of(2048), heads_kv)) << pattern;
    EXPECT_TRUE(tall("causal_document", short_documents, heads_kv));
    EXPECT_TRUE(tall("sliding_window_causal", window, heads_kv));
    EXPECT_TRUE(tall("variable_block_sparse", blocks, heads_kv));
  }
  for (const int64_t heads_kv : {16, 32}) {  // 96 and 192 tokens
    EXPECT_FALSE(tall("causal", of(4096), heads_kv));
    EXPECT_FALSE(tall("sliding_window", of(32768), heads_kv));
    EXPECT_FALSE(tall("causal_document", short_documents, heads_kv));
    EXPECT_TRUE(tall("causal", of(8192), heads_kv));  // a mean row sees 4,096 keys
    EXPECT_TRUE(tall("prefix_lm_causal", of(16384), heads_kv));
  }
}

TEST(ForwardShape, TakesTheTilesInWhichRectanglesEndSooner) {
  PatternOptions short_documents = of(20000), blocks = of(16384, 256);
  short_documents.lengths = "uniform:100:400";
  EXPECT_EQ(shape_of(problem_of("full_document", short_documents, 32, 32)).warpgroups, 3);
  blocks.values.set("density", 0.2);
  EXPECT_EQ(shape_of(problem_of("variable_block_sparse", blocks, 32, 32)).warpgroups, 3);
  EXPECT_EQ(shape_of(problem_of("variable_block_sparse", blocks, 4, 4)).warpgroups, 2);  // 2.6 items a CTA
  const auto tall = [](int64_t seqlen, int64_t heads_q, int64_t heads_kv) {
    return shape_of(problem_of("full", of(seqlen), heads_q, heads_kv)).warpgroups == 3;
  };
  EXPECT_FALSE(tall(1024, 64, 8));  // 344 tall items in 3 rounds or 512 in 4: 39 or 36.5 tall tiles
  EXPECT_FALSE(tall(2048, 64, 8));  // 688 in 6 or 1,024 in 8: 156 or 146
  EXPECT_TRUE(tall(4096, 64, 8));   // 1,368 in 11 or 2,048 in 16: 572 or 584
  EXPECT_TRUE(tall(32768, 64, 8));
  EXPECT_TRUE(tall(12000, 16, 16));
}

TEST(ForwardShape, PacksTheQueryHeadsOfAGroup) {
  EXPECT_EQ(shape_of(problem_of("causal", of(1024), 64, 8)).pack, 8);
  EXPECT_EQ(shape_of(problem_of("causal", of(1024), 64, 1)).pack, 8);
  EXPECT_EQ(shape_of(problem_of("causal", of(1024), 12, 2)).pack, 2);
  EXPECT_EQ(shape_of(problem_of("causal", of(1024), 8, 8)).pack, 1);
  EXPECT_EQ(shape_of(problem_of("causal", of(2048), 64, 8)).tile_shape(), (TileShape{24, 80}));
  EXPECT_EQ(shape_of(problem_of("causal", of(2048), 8, 8)).tile_shape(), (TileShape{128, 128}));
}

TEST(ForwardShape, MatchesTheBlocksOfBlockSparseMasks) {
  EXPECT_EQ(shape_of(problem_of("uniform_block_sparse", of(4096, 128), 8, 2)).tile_shape(),
            (TileShape{128, 128}));
  const ForwardShape single = shape_of(problem_of("uniform_block_sparse", of(4096, 64), 4, 4));
  EXPECT_EQ(single.tile_shape(), (TileShape{64, 64}));  // of the map; the kernel gathers two of these
  EXPECT_EQ(single.columns, 128);
  EXPECT_EQ(single.streams, 2);
  const ForwardShape grouped = shape_of(problem_of("uniform_block_sparse", of(4096, 64), 32, 4));
  EXPECT_EQ(grouped.tile_shape(), (TileShape{64, 64}));
  EXPECT_EQ(grouped.columns, 128);
  EXPECT_EQ(grouped.streams, 1);
}

TEST(ForwardShape, BeginsRowTilesWhereBlocksAndLongDocumentsDo) {
  const auto row_tiles = [](std::string_view pattern, const PatternOptions& options, int64_t heads_kv) {
    return shape_of(problem_of(pattern, options, 8, heads_kv)).row_tiles;
  };
  PatternOptions long_documents = of(8192), short_documents = of(8192);
  long_documents.lengths = "uniform:40:200", short_documents.lengths = "uniform:10:60";
  PatternOptions blocks = of(8192, 256);
  blocks.values.set("density", 0.2);
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 8), RowTiles::kOfBlocks);
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 1), RowTiles::kOfBlocks);
  blocks.values.set("density", 0.8);  // a row tile in two blocks sees hardly more than in one
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 8), RowTiles::kEven);
  blocks.values.set("density", 1.0);
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 8), RowTiles::kEven);
  EXPECT_EQ(row_tiles("causal_document", long_documents, 1), RowTiles::kOfBlocks);
  EXPECT_EQ(row_tiles("causal_document", short_documents, 1), RowTiles::kEven);
  EXPECT_EQ(row_tiles("causal_document", long_documents, 8), RowTiles::kEven);  // of 128 tokens
  EXPECT_EQ(row_tiles("full_document", long_documents, 1), RowTiles::kOfBlocks);
  EXPECT_EQ(row_tiles("uniform_block_sparse", of(8192, 128), 8), RowTiles::kEven);
  EXPECT_EQ(row_tiles("full", of(8192), 1), RowTiles::kEven);
  EXPECT_EQ(row_tiles("prefix_lm_causal", of(8192), 1), RowTiles::kEven);
}

TEST(ForwardShape, HasThreeOrFourWarpgroupsAtHeadDim64) {
  const auto at_64 = [](std::string_view pattern, const PatternOptions& options, int64_t heads_q,
                        int64_t heads_kv) {
    Problem problem = problem_of(pattern, options, heads_q, heads_kv);
    problem.head_dim = 64;
    return shape_of(problem);
  };
  const TileShape tall{256, 64}, of_three{192, 128};
  EXPECT_EQ(at_64("causal", of(8192), 64, 8).tile_shape(), (TileShape{32, 64}));
  EXPECT_EQ(at_64("full", of(1024), 32, 8).tile_shape(), (TileShape{64, 64}));
  EXPECT_EQ(at_64("sliding_window", of(8192), 16, 8).tile_shape(), (TileShape{128, 64}));
  // Of equal heads a tall row tile has many tokens.
  EXPECT_EQ(at_64("causal_document", of(8192), 8, 8).tile_shape(), of_three);
  EXPECT_EQ(at_64("sliding_window", of(8192), 8, 8).tile_shape(), of_three);
  EXPECT_EQ(at_64("causal", of(2048), 16, 16).tile_shape(), of_three);
  EXPECT_EQ(at_64("causal", of(4096), 16, 16).tile_shape(), tall);  // a mean row sees 2,048 keys
  EXPECT_EQ(at_64("full", of(12000), 16, 16).tile_shape(), tall);
  EXPECT_EQ(at_64("full", of(1024), 16, 16).tile_shape(), of_three);  // 64 of 132 SMs would have work
  // Where tall row tiles lie in more blocks at once.
  EXPECT_EQ(at_64("variable_block_sparse", of(16384, 256), 16, 8).tile_shape(), (TileShape{96, 128}));
  // Row tiles of blocks are no higher than blocks, unless these are long.
  EXPECT_EQ(at_64("uniform_block_sparse", of(4096, 128), 4, 4).tile_shape(), (TileShape{128, 128}));
  EXPECT_EQ(at_64("uniform_block_sparse", of(4096, 128), 8, 4).tile_shape(), (TileShape{128, 64}));
  EXPECT_EQ(at_64("uniform_block_sparse", of(4096, 64), 4, 4).tile_rows(), 64);
  EXPECT_EQ(at_64("uniform_block_sparse", of(4096, 64), 8, 4).tile_rows(), 128);
  EXPECT_EQ(at_64("uniform_block_sparse", of(4096, 64), 32, 4).tile_shape(), (TileShape{32, 64}));
  EXPECT_EQ(at_64("block_causal_document", of(16384, 1024), 32, 8).tile_shape(), (TileShape{64, 64}));
  EXPECT_EQ(at_64("block_causal_document", of(8192, 128), 8, 8).tile_shape(), (TileShape{128, 128}));
}

TEST(ForwardShape, IsTheSameForAllMasksIfLaunchesAre) {
  for (const char* pattern : {"full", "causal", "sliding_window", "uniform_block_sparse"}) {
    Problem problem = problem_of(pattern, of(8192, pattern[0] == 'u' ? 128 : 0), 8, 2);
    problem.same_launches = true;
    EXPECT_EQ(shape_of(problem).tile_shape(), (TileShape{48, 80})) << pattern;
    problem.heads_q = 2;
    EXPECT_EQ(shape_of(problem).tile_shape(), (TileShape{128, 128})) << pattern;
    problem.head_dim = 64;
    EXPECT_EQ(shape_of(problem).tile_shape(), (TileShape{192, 128})) << pattern;
  }
}

TEST(ForwardShape, HasPlainTilesAboveHeadDim128) {
  for (const auto& [head_dim, head_dim_v, columns] :
       {std::tuple{192, 128, h200::forward::kTall.columns}, {256, 256, h200::forward::kTallOf256.columns}}) {
    for (const char* pattern : {"full", "causal_document", "uniform_block_sparse"}) {
      Problem problem = problem_of(pattern, of(8192, pattern[0] == 'u' ? 64 : 0), 64, 8);
      problem.head_dim = head_dim, problem.head_dim_v = head_dim_v;
      for (const bool same_launches : {false, true}) {
        problem.same_launches = same_launches;
        const ForwardShape shape = shape_of(problem);
        EXPECT_EQ(shape.tile_shape(), (TileShape{head_dim == 256 ? 16 : 24, columns})) << pattern;
        EXPECT_EQ(shape.streams, 1) << pattern;
      }
    }
  }
}

}  // namespace
}  // namespace longspan::sm90
