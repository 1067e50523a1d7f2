#include "kernels/sm90/forward/planner/shape.h"

#include <cstdlib>
#include <memory>
#include <tuple>
#include <vector>

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

TEST(ForwardShape, TakesTheTilesWithWhichTheLastSmEndsFirst) {
  const auto tall = [](int64_t seqlen, int64_t heads_q, int64_t heads_kv, std::string_view pattern = "full") {
    const ForwardShape shape = shape_of(problem_of(pattern, of(seqlen), heads_q, heads_kv));
    EXPECT_EQ(shape.columns, shape.warpgroups == 3 ? 80 : 128);
    return shape.warpgroups == 3;
  };
  EXPECT_FALSE(tall(1024, 64, 8));   // 344 tall items in 3 rounds or 512 in 4: 38.4 or 37.8 tall tiles
  EXPECT_FALSE(tall(2048, 64, 8));   // 688 in 6 or 1,024 in 8: 154 or 151
  EXPECT_TRUE(tall(4096, 64, 8));    // 1,368 in 11 or 2,048 in 16: 563 or 604
  EXPECT_FALSE(tall(8192, 16, 16));  // 688 in 6 or 1,024 in 8: 614 or 604
  EXPECT_TRUE(tall(8192, 28, 4));    // 1,204 in 10 or 1,792 in 14: 1,024 or 1,057
  EXPECT_TRUE(tall(12000, 16, 16));
  EXPECT_TRUE(tall(32768, 64, 8));
  EXPECT_FALSE(tall(1024, 32, 8, "causal"));
  EXPECT_FALSE(tall(2048, 16, 16, "causal"));
  EXPECT_TRUE(tall(3072, 16, 16, "causal"));
  EXPECT_FALSE(tall(4096, 16, 16, "causal"));  // 22 row tiles a head where 32 fill the SMs
  EXPECT_TRUE(tall(8192, 16, 16, "causal"));
}

TEST(ForwardShape, TakesTallTilesWhereFewOfTheirRowsSeeLess) {
  const auto warpgroups = [](std::string_view pattern, const PatternOptions& options, int64_t heads_kv) {
    return shape_of(problem_of(pattern, options, 32, heads_kv)).warpgroups;
  };
  PatternOptions short_documents = of(20000), window = of(32768), blocks = of(16384, 256);
  short_documents.lengths = "uniform:100:400";
  window.values.set("window", TokenPair{127, 0});
  for (const int64_t heads_kv : {4, 8}) {  // of 24 and 48 tokens
    EXPECT_EQ(warpgroups("causal_document", short_documents, heads_kv), 3);
    EXPECT_EQ(warpgroups("sliding_window_causal", window, heads_kv), 3);
  }
  EXPECT_EQ(warpgroups("sliding_window_causal", window, 32), 2);  // 320 keys for 192 tokens, or 256 for 128
  EXPECT_EQ(warpgroups("causal_document", short_documents, 32), 3);
  EXPECT_EQ(warpgroups("full_document", short_documents, 32), 3);
  blocks.values.set("density", 0.2);
  EXPECT_EQ(warpgroups("variable_block_sparse", blocks, 32), 3);
}

TEST(ForwardShape, PairsCtasWhereAllRowsSeeTheSameKeysAtHeadDim256) {
  const auto paired = [](std::string_view pattern, int64_t seqlen, int64_t heads_q = 64, int64_t heads_kv = 8,
                         int64_t head_dim = 256) {
    Problem problem = problem_of(pattern, of(seqlen), heads_q, heads_kv);
    problem.head_dim = head_dim;
    return shape_of(problem).paired;
  };
  EXPECT_TRUE(paired("full", 4096));
  EXPECT_TRUE(paired("full", 4081));  // 256 row tiles, the last one of a token
  EXPECT_FALSE(paired("full", 4096, 64, 8, 128));
  EXPECT_FALSE(paired("causal", 4096));
  EXPECT_FALSE(paired("full_document", 4096));
  EXPECT_FALSE(paired("full", 16, 2048, 256));  // one row tile of 16 tokens
  EXPECT_FALSE(paired("full", 1024, 16, 16));   // 128 items, one round
  EXPECT_TRUE(paired("full", 1024, 17, 17));
  EXPECT_TRUE(paired("full", 300, 64, 64));   // 192 items in two rounds, 128 pairs as well
  EXPECT_FALSE(paired("full", 300, 88, 88));  // 264 items in two rounds, 176 pairs in three
  Problem problem = problem_of("full", of(4096), 64, 8);
  problem.head_dim = 256;
  problem.same_launches = true;
  EXPECT_FALSE(shape_of(problem).paired);
  problem.same_launches = false;
  problem.tokens_q = 5000;  // the last ones see no key
  problem.masks =
      std::make_shared<const HeadMasks>(HeadMasks{Mask(5000, 4096, {Band{{0, 4096}, {0, 4096}}})});
  EXPECT_FALSE(shape_of(problem).paired);
}

// The first keys of a row tile's tiles.
std::vector<int32_t> tiles_of(const ForwardMap& map, const MapRow& row, int columns) {
  std::vector<int32_t> result;
  for (int32_t i = 0; i < row.entries; ++i) {
    const MapEntry& entry = map.entries[row.first_entry + i];
    for (int32_t t = 0; t < std::abs(entry.code); ++t) result.push_back(entry.column + t * columns);
    if (entry.code < 0) ++i;  // a partial tile, whose cut follows
  }
  return result;
}

// CTAs of a pair load tiles for each other.
TEST(ForwardShape, TilesOfAPairAreTheSame) {
  for (const int64_t rows : {100, 129, 4081}) {
    for (const int64_t columns : {1, 15, 80, 81, 1000, 4096}) {
      for (const Range keys : {Range{0, columns}, Range{columns / 3, columns}}) {
        for (const int tokens : {16, 32, 64, 128}) {
          const ForwardMap map = lower_forward({Mask(rows, columns, {Band{{0, rows}, keys}})}, {tokens, 80});
          for (const MapRow& row : map.work)
            EXPECT_EQ(tiles_of(map, row, 80), tiles_of(map, map.work.front(), 80));
        }
      }
    }
  }
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
  EXPECT_EQ(row_tiles("prefix_lm_causal", of(8192), 1),
            RowTiles::kOfBlocks);  // as 8,192 is no multiple of 24
}

// A row tile in two documents sees the keys of both, and would end last.
TEST(ForwardShape, BeginsRowTilesWhereTwoDocumentsMeet) {
  PatternOptions two = of(3100);
  two.lengths = "list:1590:1510";
  const Problem problem = problem_of("full_document", two, 8, 1);
  const ForwardShape shape = shape_of(problem);
  EXPECT_EQ(shape.row_tiles, RowTiles::kOfBlocks);
  const auto heaviest = [&](RowTiles row_tiles) {
    return lower_forward(*problem.masks, shape.tile_shape(), row_tiles).work.front().cost;
  };
  EXPECT_LT(heaviest(RowTiles::kOfBlocks), 0.55 * heaviest(RowTiles::kEven));
}

TEST(ForwardShape, HasTwoToFourWarpgroupsAtHeadDim64) {
  const auto at_64 = [](std::string_view pattern, const PatternOptions& options, int64_t heads_q,
                        int64_t heads_kv) {
    Problem problem = problem_of(pattern, options, heads_q, heads_kv);
    problem.head_dim = 64;
    return shape_of(problem);
  };
  const TileShape of_four{256, 64}, of_three{192, 128}, of_two{128, 128};
  EXPECT_EQ(at_64("full", of(1024), 16, 16).tile_shape(), of_two);  // the others leave 36 and 68 SMs idle
  EXPECT_EQ(at_64("causal", of(1024), 16, 16).tile_shape(), of_two);
  EXPECT_EQ(at_64("full", of(2048), 16, 16).tile_shape(), of_four);   // one round of 128 items
  EXPECT_EQ(at_64("full", of(3072), 24, 24).tile_shape(), of_three);  // 384 in three rounds, not 288 in three
  EXPECT_EQ(at_64("full", of(4096), 16, 16).tile_shape(), of_four);
  EXPECT_EQ(at_64("causal", of(4096), 24, 24).tile_shape(), of_three);
  EXPECT_EQ(at_64("full", of(1024), 32, 8).tile_shape(), (TileShape{64, 64}));
  EXPECT_EQ(at_64("causal", of(8192), 64, 8).tile_shape(), (TileShape{24, 128}));
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
  for (const auto& [head_dim, head_dim_v, columns] : {std::tuple{192, 128, 80}, {256, 256, 80}}) {
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
