#include "kernels/sm90/forward_shape.h"

#include <memory>

#include <gmock/gmock.h>

#include "mask/patterns.h"

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

PatternOptions of(int64_t seqlen, int64_t block = 0) {
  PatternOptions options;
  options.seqlen = seqlen;
  if (block > 0) options.block = block;
  return options;
}

TEST(ForwardShape, TakesWideTilesForLongRowsAndNarrowOnesForShort) {
  EXPECT_EQ(choose_forward_shape(problem_of("full", of(8192), 64, 8)).columns, 160);
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(8192), 64, 8)).columns, 160);
  EXPECT_EQ(choose_forward_shape(problem_of("sliding_window_causal", of(32768), 64, 8)).columns, 160);
  EXPECT_EQ(choose_forward_shape(problem_of("full", of(1024), 64, 8)).columns, 128);
  PatternOptions short_documents = of(8192);
  short_documents.lengths = "uniform:100:400";
  EXPECT_EQ(choose_forward_shape(problem_of("causal_document", short_documents, 64, 8)).columns, 128);
}

TEST(ForwardShape, PacksTheQueryHeadsOfAGroup) {
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(1024), 64, 8)).pack, 8);
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(1024), 64, 1)).pack, 8);
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(1024), 12, 2)).pack, 2);
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(1024), 8, 8)).pack, 1);
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(1024), 64, 8)).tile_shape(), (TileShape{16, 128}));
  EXPECT_EQ(choose_forward_shape(problem_of("causal", of(2048), 64, 8)).tile_shape(), (TileShape{16, 160}));
}

TEST(ForwardShape, MatchesTheBlocksOfBlockSparseMasks) {
  EXPECT_EQ(choose_forward_shape(problem_of("uniform_block_sparse", of(4096, 128), 8, 2)).tile_shape(),
            (TileShape{128, 128}));
  const ForwardShape single = choose_forward_shape(problem_of("uniform_block_sparse", of(4096, 64), 4, 4));
  EXPECT_EQ(single.tile_shape(), (TileShape{64, 64}));  // of the map; the kernel gathers two of these
  EXPECT_EQ(single.columns, 128);
  EXPECT_EQ(single.streams, 2);
  const ForwardShape grouped = choose_forward_shape(problem_of("uniform_block_sparse", of(4096, 64), 32, 4));
  EXPECT_EQ(grouped.tile_shape(), (TileShape{64, 64}));
  EXPECT_EQ(grouped.columns, 128);
  EXPECT_EQ(grouped.streams, 1);
}

TEST(ForwardShape, BeginsRowTilesWhereBlocksAndLongDocumentsDo) {
  const auto row_tiles = [](std::string_view pattern, const PatternOptions& options, int64_t heads_kv) {
    return choose_forward_shape(problem_of(pattern, options, 8, heads_kv)).row_tiles;
  };
  PatternOptions long_documents = of(8192), short_documents = of(8192);
  long_documents.lengths = "uniform:400:800", short_documents.lengths = "uniform:100:300";
  PatternOptions blocks = of(8192, 256);
  blocks.density = 0.2;
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 8), RowTiles::kOfBlocks);
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 1), RowTiles::kOfBlocks);
  blocks.density = 0.8;  // a row tile in two blocks sees hardly more than in one
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 8), RowTiles::kEven);
  blocks.density = 1;
  EXPECT_EQ(row_tiles("variable_block_sparse", blocks, 8), RowTiles::kEven);
  EXPECT_EQ(row_tiles("causal_document", long_documents, 1), RowTiles::kOfBlocks);
  EXPECT_EQ(row_tiles("causal_document", short_documents, 1), RowTiles::kEven);
  EXPECT_EQ(row_tiles("full_document", short_documents, 1), RowTiles::kOfBlocks);
  EXPECT_EQ(row_tiles("uniform_block_sparse", of(8192, 128), 8), RowTiles::kEven);
  EXPECT_EQ(row_tiles("full", of(8192), 1), RowTiles::kEven);
  EXPECT_EQ(row_tiles("prefix_lm_causal", of(8192), 1), RowTiles::kEven);
}

}  // namespace
}  // namespace longspan::sm90
