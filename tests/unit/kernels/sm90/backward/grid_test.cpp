// Tiles that begin with documents cover every token once, and show exactly the pairs that the mask shows.
#include "kernels/sm90/backward/planner/grid.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

constexpr TileShape kShape{128, 64};

void expect_cover(std::span<const TileExtent> tiles, int32_t size, int64_t tokens) {
  int64_t next = 0;
  for (const TileExtent& tile : tiles) {
    if (next == tokens) {  // another mask of the problem has more tiles
      EXPECT_EQ(tile.count, 0);
      continue;
    }
    EXPECT_EQ(tile.first, next);
    EXPECT_TRUE(0 < tile.count && tile.count <= size);
    next += tile.count;
  }
  EXPECT_EQ(next, tokens);
}

// How often the kernel sees each pair [rows, columns] of a mask. It takes all tokens of a full tile as
// visible.
std::vector<char> visible_pairs(const BackwardGrid& grid, size_t mask, int64_t rows, int64_t columns) {
  std::vector<char> pairs(static_cast<size_t>(rows * columns), 0);
  const CompiledMap& map = grid.map;
  const auto key_tiles = static_cast<size_t>(map.row_tiles);
  const size_t row_tiles = grid.rows.size() / (map.work.size() / key_tiles);
  const auto row_tile = [&](size_t tile) { return grid.rows.at(mask * row_tiles + tile); };
  for (size_t position = 0; position < key_tiles; ++position) {
    const WorkRow& work = map.work[mask * key_tiles + position];
    const TileExtent keys = grid.keys[mask * key_tiles + static_cast<size_t>(work.row_tile)];
    const auto show = [&](const TileExtent& of, int32_t row, int32_t key) {
      if (row >= of.count) return;  // the stats of such rows hide them
      ASSERT_LT(key, keys.count);
      ++pairs[static_cast<size_t>((of.first + row) * columns + keys.first + key)];
    };
    for (uint32_t r = work.first_run; r < work.first_run + static_cast<uint32_t>(work.runs); ++r) {
      const DeviceRun& run = map.runs[r];
      EXPECT_EQ(run.column % kShape.columns, 0);
      const auto first = static_cast<size_t>(run.column / kShape.columns);
      for (int32_t t = 0; t < run.code; ++t) {
        const TileExtent of = row_tile(first + static_cast<size_t>(t));
        EXPECT_EQ(of.first, row_tile(first).first + t * kShape.columns) << "runs go over neighbouring rows";
        for (int32_t row = 0; row < of.count; ++row)
          for (int32_t key = 0; key < keys.count; ++key) show(of, row, key);
      }
      if (run.code > 0) continue;
      const int32_t number = ~run.code;
      const DevicePartial partial = number & kManyLayers
                                        ? map.partials[static_cast<size_t>(number & ~kManyLayers)]
                                        : DevicePartial{number, 1};
      for (int32_t layer = partial.first; layer < partial.first + partial.layers; ++layer)
        for (int32_t key = 0; key < kShape.rows; ++key) {
          const Span span = map.spans[static_cast<size_t>(layer * kShape.rows + key)];
          for (int32_t row = span.begin; row < span.end; ++row) show(row_tile(first), row, key);
        }
    }
  }
  return pairs;
}

int64_t tiles_of(const BackwardGrid& grid) {
  int64_t tiles = 0;
  for (const DeviceRun& run : grid.map.runs) tiles += std::max(run.code, 1);
  return tiles;
}

TEST(BackwardGrid, ShowsThePairsThatTheMaskShows) {
  for (const Pattern& pattern : patterns())
    for (const auto& [lengths, aligned] : {std::pair{"uniform:100:500", true},
                                           {"uniform:1:60", true},
                                           {"uniform:10:300", true},
                                           {"uniform:10:300", false}}) {
      SCOPED_TRACE(std::string(pattern.name) + " " + lengths);
      PatternOptions options;
      options.seqlen = pattern.name == "block_causal_document" ? 1024 : 1100;
      options.lengths = lengths;
      if (pattern.block_sparse)
        options.values.set("block", pattern.name == "uniform_block_sparse" ? 64 : 256);
      options.kv_heads = 3;
      const HeadMasks masks = draw_mask(pattern.name, options).masks;
      const BackwardGrid grid = lay_tiles(masks, kShape, aligned);
      const size_t row_tiles = grid.rows.size() / masks.size(), key_tiles = grid.keys.size() / masks.size();
      ASSERT_EQ(static_cast<int32_t>(key_tiles), grid.map.row_tiles);
      for (size_t i = 0; i < masks.size(); ++i) {
        const Mask& mask = masks[i];
        expect_cover(std::span(grid.rows).subspan(i * row_tiles, row_tiles), kShape.columns, mask.rows());
        expect_cover(std::span(grid.keys).subspan(i * key_tiles, key_tiles), kShape.rows, mask.columns());
        std::vector<char> expected(static_cast<size_t>(mask.rows() * mask.columns()), 0);
        for (int64_t row = 0; row < mask.rows(); ++row)
          for (const Range& keys : mask.visible_keys(row))
            for (int64_t key = keys.begin; key < keys.end; ++key)
              expected[static_cast<size_t>(row * mask.columns() + key)] = 1;
        EXPECT_TRUE(visible_pairs(grid, i, mask.rows(), mask.columns()) == expected) << "mask " << i;
      }
    }
}

TEST(BackwardGrid, TakesFewerTilesWhereDocumentsAreShort) {
  PatternOptions options;
  options.seqlen = 32768;
  for (const char* name : {"causal_document", "full_document"}) {
    const HeadMasks masks = draw_mask(name, options).masks;
    EXPECT_LT(static_cast<double>(tiles_of(lay_tiles(masks, kShape, true))),
              0.96 * static_cast<double>(tiles_of(lay_tiles(masks, kShape, false))));
  }
}

// Tiles of documents end with them, so they cover little more than is visible.
TEST(BackwardGrid, CoversLittleMoreThanDocumentsShow) {
  for (const auto& [mask, most] : {std::pair{"full_document", 1.1}, {"causal_document", 1.2}})
    for (const int64_t seqlen : {8192, 32768, 49152}) {
      PatternOptions options;
      options.seqlen = seqlen;
      const HeadMasks masks = draw_mask(mask, options).masks;
      const auto pairs =
          static_cast<double>(tiles_of(lay_tiles(masks, kShape, true)) * kShape.rows * kShape.columns);
      const auto visible = static_cast<double>(masks.front().area());
      EXPECT_GE(pairs, visible) << mask << " " << seqlen;
      EXPECT_LE(pairs, most * visible) << mask << " " << seqlen;
    }
}

// A low row tile costs as many keys as a whole one, so it lies where rows see the fewest.
TEST(BackwardGrid, HasTheLowRowTileFirstBelowADiagonal) {
  constexpr TileShape kTall{128, 80};
  PatternOptions options;
  options.seqlen = 2048;
  const BackwardGrid causal = lay_tiles(draw_mask("causal", options).masks, kTall, false);
  EXPECT_EQ(causal.rows.front(), (TileExtent{0, 48}));
  EXPECT_EQ(causal.rows.back(), (TileExtent{1968, 80}));
  EXPECT_EQ(tiles_of(causal), 224);  // 230 with the low one last
  const BackwardGrid full = lay_tiles(draw_mask("full", options).masks, kTall, false);
  EXPECT_EQ(full.rows.back(), (TileExtent{2000, 48}));
}

TEST(BackwardGrid, FollowsBlocksOfAllSizesInEachHead) {
  PatternOptions options;
  options.seqlen = 16384;
  options.kv_heads = 2;
  options.values.set("block", 256);
  options.values.set("density", 0.1);
  const HeadMasks masks = draw_mask("variable_block_sparse", options).masks;
  EXPECT_LT(static_cast<double>(tiles_of(lay_tiles(masks, kShape, true))),
            0.9 * static_cast<double>(tiles_of(lay_tiles(masks, kShape, false))));
}

TEST(BackwardGrid, LeavesTilesWhereTheyAreIfThatIsNotBetter) {
  PatternOptions options;
  options.seqlen = 5000;
  options.lengths = "uniform:20:30";
  for (const char* name : {"causal", "sliding_window", "causal_document"}) {
    const HeadMasks masks = draw_mask(name, options).masks;
    EXPECT_EQ(lay_tiles(masks, kShape, true).rows, lay_tiles(masks, kShape, false).rows);
  }
}

}  // namespace
}  // namespace longspan::sm90
