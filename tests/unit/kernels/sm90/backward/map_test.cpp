// The tile map by columns, which the backward kernel walks, agrees with the map by rows: the same tiles, and
// the same ones full.
#include <map>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/compiled_map.h"
#include "mask/lowering/lower.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

constexpr int kKeys = 128;

using Tile = std::pair<int64_t, int64_t>;  // of queries, of keys

// Whether each visited tile is full, in the map by rows.
std::map<Tile, bool> tiles_by_rows(const Mask& mask, TileShape shape) {
  std::map<Tile, bool> tiles;
  const TileMap map = lower(mask, shape);
  for (int64_t row = 0; row < map.row_tiles(); ++row)
    for (const Run& run : map.runs_of(row))
      for (int32_t t = 0; t < run.count(); ++t)
        EXPECT_TRUE(tiles.emplace(Tile{row, run.tile + t}, run.full()).second);
  return tiles;
}

// The same in the compiled map by columns, read as the load warp reads it.
std::map<Tile, bool> tiles_by_columns(const Mask& mask, TileShape shape) {
  std::map<Tile, bool> tiles;
  const std::vector<TileMap> maps = {lower(mask.transposed(), {shape.columns, shape.rows})};
  const CompiledMap map = compile(maps);
  for (const WorkRow& work : map.work)
    for (uint32_t r = work.first_run; r < work.first_run + static_cast<uint32_t>(work.runs); ++r)
      for (int32_t t = 0; t < std::max(map.runs[r].code, 1); ++t) {
        EXPECT_EQ(map.runs[r].column % shape.rows, 0);
        const Tile tile{map.runs[r].column / shape.rows + t, work.row_tile};
        EXPECT_TRUE(tiles.emplace(tile, map.runs[r].code > 0).second)
            << "tile " << tile.first << ", " << tile.second << " twice";
      }
  return tiles;
}

TEST(BackwardMap, VisitsEachTileOnceAndAsFullAsTheForwardMap) {
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(std::string(pattern.name));
    PatternOptions options;
    options.seqlen = pattern.name == "block_causal_document" ? 2048 : 1900;
    options.lengths = "uniform:20:300";
    if (pattern.block_sparse) options.values.set("block", pattern.name == "uniform_block_sparse" ? 64 : 256);
    for (const Mask& mask : draw_mask(pattern.name, options).masks)
      for (const int rows : {64, 80}) {
        const TileShape shape{rows, kKeys};
        EXPECT_EQ(tiles_by_columns(mask, shape), tiles_by_rows(mask, shape));
      }
  }
}

TEST(BackwardMap, KnowsKeysThatNoRowSees) {
  const Mask mask(300, 1000, std::vector<Band>{{{10, 200}, {500, 520}}});
  const std::vector<TileMap> maps = {lower(mask.transposed(), {kKeys, 64})};
  const CompiledMap map = compile(maps);
  ASSERT_EQ(map.work.size(), 8u);
  EXPECT_EQ(map.work[0].row_tile, 3);
  EXPECT_EQ(map.work[1].row_tile, 4);
  for (size_t i = 2; i < 8; ++i) EXPECT_EQ(map.work[i].runs, 0);
}

}  // namespace
}  // namespace longspan::sm90
