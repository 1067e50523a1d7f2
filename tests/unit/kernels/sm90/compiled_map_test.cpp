// The compiled tile map shows exactly the pairs that the mask shows.
#include "kernels/sm90/compiled_map.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/grid.h"
#include "mask/lowering/lower.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {
namespace {

using Pairs = std::vector<char>;  // [rows, columns]: how often each is shown

// Reads the map as the kernel does.
Pairs visible_pairs(const CompiledMap& map, size_t mask, TileShape shape, int64_t rows, int64_t columns) {
  Pairs pairs(static_cast<size_t>(rows * columns), 0);
  const auto show = [&](int64_t row, int64_t column) {
    if (row >= rows || column >= columns)
      ADD_FAILURE() << row << ", " << column << " lies outside the mask";
    else
      ++pairs[static_cast<size_t>(row * columns + column)];
  };
  for (int32_t position = 0; position < map.row_tiles; ++position) {
    const WorkRow& work = map.work[mask * static_cast<size_t>(map.row_tiles) + static_cast<size_t>(position)];
    const int64_t first_row = int64_t{work.row_tile} * shape.rows;
    for (uint32_t r = work.first_run; r < work.first_run + static_cast<uint32_t>(work.runs); ++r) {
      const DeviceRun& run = map.runs[r];
      if (run.code > 0) {
        const int64_t end = std::min<int64_t>(columns, run.column + int64_t{run.code} * shape.columns);
        for (int64_t row = first_row; row < std::min<int64_t>(rows, first_row + shape.rows); ++row)
          for (int64_t column = run.column; column < end; ++column) show(row, column);
        continue;
      }
      const int32_t number = ~run.code;
      const DevicePartial partial = number & kManyLayers
                                        ? map.partials[static_cast<size_t>(number & ~kManyLayers)]
                                        : DevicePartial{number, 1};
      for (int32_t layer = partial.first; layer < partial.first + partial.layers; ++layer)
        for (int32_t row = 0; row < shape.rows; ++row) {
          const Span span = map.spans[static_cast<size_t>(layer * shape.rows + row)];
          for (int32_t c = span.begin; c < span.end; ++c) show(first_row + row, run.column + c);
        }
    }
  }
  return pairs;
}

void expect_same_pairs(const HeadMasks& masks, TileShape shape) {
  std::vector<TileMap> maps;
  for (const Mask& mask : masks) maps.push_back(lower(mask, shape));
  const CompiledMap map = compile(maps);
  for (size_t i = 0; i < masks.size(); ++i) {
    Pairs expected(static_cast<size_t>(masks[i].rows() * masks[i].columns()), 0);
    for (int64_t row = 0; row < masks[i].rows(); ++row)
      for (const Range& keys : masks[i].visible_keys(row))
        for (int64_t column = keys.begin; column < keys.end; ++column)
          expected[static_cast<size_t>(row * masks[i].columns() + column)] = 1;
    EXPECT_TRUE(visible_pairs(map, i, shape, masks[i].rows(), masks[i].columns()) == expected)
        << "mask " << i;
  }
}

HeadMasks small_masks(const Pattern& pattern) {
  PatternOptions options;
  options.seqlen = 1024;
  options.lengths = "uniform:20:300";
  if (pattern.block_sparse) options.values.set("block", 128);
  return draw_mask(pattern.name, options).masks;
}

TEST(CompiledMap, ShowsThePairsOfEveryPattern) {
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(std::string(pattern.name));
    const HeadMasks masks = small_masks(pattern);
    expect_same_pairs(masks, {16, 128});
    expect_same_pairs(masks, {64, 160});
  }
}

TEST(CompiledMap, KeepsMasksOfSeveralHeadsApart) {
  const Mask causal(100, 100, std::vector<Band>{{{0, 100}, {0, 100}, kUnboundedBelow, 0}});
  const Mask window(100, 100, std::vector<Band>{{{0, 100}, {0, 100}, -7, 3}});
  const Mask nothing(100, 100, std::vector<Band>{});
  expect_same_pairs({causal, window, nothing, causal}, {16, 64});
}

TEST(CompiledMap, KeepsSeveralIntervalsOfARowInOneTile) {
  std::vector<Band> bands;
  for (int64_t c = 0; c < 128; c += 10) bands.push_back({{3, 40}, {c, c + 4}});
  expect_same_pairs({Mask(50, 130, bands)}, {16, 128});
}

// Marks parts of a map's tiles and expects the marks that its spans ask for. Returns their number.
int expect_marks(const CompiledMap& before) {
  CompiledMap map = before;
  mark_unseen_parts(map);
  int marked = 0;
  for (size_t i = 0; i < map.runs.size(); ++i) {
    const int32_t code = map.runs[i].code, plain = before.runs[i].code;
    if (plain > 0) {
      EXPECT_EQ(code, plain);
      continue;
    }
    EXPECT_EQ(code | kUnseenParts, plain) << "bits are set in the complement";
    const DevicePartial partial = ~plain & kManyLayers
                                      ? before.partials[static_cast<size_t>(~plain & ~kManyLayers)]
                                      : DevicePartial{~plain, 1};
    const int32_t rows = before.rows_per_tile;
    bool sees[3] = {false, false, false};
    for (int32_t layer = partial.first; layer < partial.first + partial.layers; ++layer)
      for (int32_t row = 0; row < rows; ++row) {
        const Span span = before.spans[static_cast<size_t>(layer * rows + row)];
        if (span.begin < span.end) sees[row / 64] = true;
      }
    EXPECT_TRUE(sees[0] || sees[1] || sees[2]) << "no part would leave a gradient";
    for (int part = 0; part < rows / 64; ++part) {
      EXPECT_EQ((~code & kUnseenPart << part) == 0, sees[part]) << part;
      marked += !sees[part];
    }
  }
  return marked;
}

TEST(CompiledMap, MarksPartsThatSeeNothing) {
  for (const TileShape shape : {TileShape{128, 64}, TileShape{192, 64}}) {
    int marked = 0;
    for (const Pattern& pattern : patterns()) {
      SCOPED_TRACE(std::string(pattern.name));
      const HeadMasks masks = small_masks(pattern);
      for (const bool aligned : {false, true}) marked += expect_marks(lay_tiles(masks, shape, aligned).map);
    }
    EXPECT_GT(marked, 20);
  }
}

TEST(CompiledMap, MarksNoTileThatSeesNothingAtAll) {
  CompiledMap map;
  map.rows_per_tile = 128;
  map.spans.assign(128, Span{});
  map.runs = {{0, partial_code(0, false)}};
  mark_unseen_parts(map);
  EXPECT_EQ(map.runs[0].code, partial_code(0, false));
}

TEST(CompiledMap, HandsOutTheHeaviestRowTilesFirst) {
  const Mask causal(512, 512, std::vector<Band>{{{0, 512}, {0, 512}, kUnboundedBelow, 0}});
  const std::vector<TileMap> maps = {lower(causal, {128, 128})};
  const CompiledMap map = compile(maps);
  std::vector<int32_t> order;
  for (const WorkRow& work : map.work) order.push_back(work.row_tile);
  EXPECT_THAT(order, testing::ElementsAre(3, 2, 1, 0));
}

}  // namespace
}  // namespace longspan::sm90
