// A tile map represents exactly its mask, with the strongest valid kind for each tile.
#include <functional>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "mask/lowering/heaviest_first.h"
#include "mask/lowering/lower.h"
#include "unit/mask/brute_force.h"

namespace longspan {
namespace {

// Counts how often the map shows each pair.
Matrix matrix_of(const TileMap& map) {
  Matrix matrix(map.rows, map.columns);
  for (int64_t t = 0; t < map.row_tiles(); ++t) {
    const int64_t row0 = t * map.shape.rows;
    for (const Run& run : map.runs_of(t)) {
      const int64_t column0 = int64_t{run.tile} * map.shape.columns;
      for (int64_t i = row0; i < std::min(row0 + map.shape.rows, map.rows); ++i) {
        if (run.full()) {
          const int64_t end = std::min(column0 + int64_t{run.count()} * map.shape.columns, map.columns);
          for (int64_t j = column0; j < end; ++j) ++matrix.at(i, j);
          continue;
        }
        const Partial& partial = map.partials.at(run.partial());
        for (int32_t n = 0; n < partial.layers; ++n) {
          const Span span = map.layer(partial.first + n)[i - row0];
          for (int64_t j = span.begin; j < span.end; ++j) ++matrix.at(i, column0 + j);
        }
      }
    }
  }
  return matrix;
}

void check_structure(const TileMap& map, const Mask& mask) {
  const int64_t row_tiles = (mask.rows() + map.shape.rows - 1) / map.shape.rows;
  RC_ASSERT(map.rows == mask.rows());
  RC_ASSERT(map.columns == mask.columns());
  RC_ASSERT(map.area == mask.area());
  RC_ASSERT(map.row_tiles() == row_tiles);
  RC_ASSERT(static_cast<int64_t>(map.offsets.size()) == row_tiles + 1);
  RC_ASSERT(map.offsets.front() == 0);
  RC_ASSERT(map.offsets.back() == static_cast<int64_t>(map.runs.size()));
  std::set<int32_t> used;
  for (int64_t t = 0; t < row_tiles; ++t) {
    int64_t tiles = 0, end = 0;
    bool after_full = false;
    for (const Run& run : map.runs_of(t)) {
      RC_ASSERT(run.count() >= 1);
      RC_ASSERT(run.tile >= end);
      RC_ASSERT(!(run.full() && after_full && run.tile == end));  // adjacent full tiles form one run
      end = int64_t{run.tile} + run.count();
      RC_ASSERT(end <= map.column_tiles());
      after_full = run.full();
      tiles += run.count();
      if (!run.full()) used.insert(run.partial());
    }
    RC_ASSERT(map.tiles[t] == tiles);
  }
  // Partials are numbered without gaps, each is used, and no two are equal.
  RC_ASSERT(used.size() == map.partials.size());
  std::set<std::vector<std::pair<int, int>>> drawn;
  int32_t layers = 0;
  for (const Partial& partial : map.partials) {
    RC_ASSERT(partial.first == layers);
    RC_ASSERT(partial.layers >= 1);
    layers += partial.layers;
    std::vector<std::pair<int, int>> spans;
    int64_t area = 0;
    for (int32_t n = 0; n < partial.layers; ++n)
      for (const Span& span : map.layer(partial.first + n)) {
        RC_ASSERT(span.begin <= span.end);
        RC_ASSERT(span.end <= map.shape.columns);
        RC_ASSERT(span.begin < span.end || span == Span{});
        spans.emplace_back(span.begin, span.end);
        area += span.end - span.begin;
      }
    RC_ASSERT(area == partial.area);
    RC_ASSERT(area > 0);
    RC_ASSERT(drawn.insert(spans).second);
  }
  RC_ASSERT(static_cast<int64_t>(map.spans.size()) == int64_t{layers} * map.shape.rows);
  // The order is a permutation with the heaviest first.
  RC_ASSERT(std::set<int32_t>(map.order.begin(), map.order.end()).size() == static_cast<size_t>(row_tiles));
  for (size_t i = 1; i < map.order.size(); ++i) {
    const int32_t a = map.order[i - 1], b = map.order[i];
    RC_ASSERT(map.tiles[a] > map.tiles[b] || (map.tiles[a] == map.tiles[b] && a < b));
  }
}

// A fully visible tile must be listed as full, and no empty tile may be listed.
void check_kinds(const TileMap& map, const Matrix& matrix) {
  for (int64_t t = 0; t < map.row_tiles(); ++t) {
    std::vector<int> kind(static_cast<size_t>(map.column_tiles()), 0);
    for (const Run& run : map.runs_of(t))
      for (int32_t n = 0; n < run.count(); ++n) kind[run.tile + n] = run.full() ? 2 : 1;
    for (int64_t c = 0; c < map.column_tiles(); ++c) {
      int64_t area = 0, size = 0;
      for (int64_t i = t * map.shape.rows; i < std::min((t + 1) * map.shape.rows, map.rows); ++i)
        for (int64_t j = c * map.shape.columns; j < std::min((c + 1) * map.shape.columns, map.columns); ++j) {
          area += matrix.at(i, j);
          ++size;
        }
      RC_ASSERT(kind[c] == (area == 0 ? 0 : area == size ? 2 : 1));
    }
  }
}

RC_GTEST_PROP(TileMap, ShowsExactlyItsMask, ()) {
  const Mask mask = random_mask();
  const TileShape shape{*rc::gen::inRange(1, 48), *rc::gen::inRange(1, 48)};
  const TileMap map = lower(mask, shape);
  const Matrix expected = longspan::matrix_of(mask);
  RC_ASSERT(matrix_of(map) == expected);
  check_structure(map, mask);
  check_kinds(map, expected);
}

// Many row tiles, most of which follow from one that was lowered in full: under a diagonal or in a window,
// with other columns to their left, until the end of the mask cuts the band.
RC_GTEST_PROP(TileMap, OfRowTilesThatFollowFromOneAnother, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(100, 500), columns = *rc::gen::inRange<int64_t>(100, 500);
  std::vector<Band> bands;
  int64_t begin = 0;
  for (int64_t i = *rc::gen::inRange(0, 3); i > 0; --i) {
    const int64_t end = std::min(begin + *rc::gen::inRange(1, 100), columns - 1);
    if (begin < end) bands.push_back({{0, rows}, {begin, end}});
    begin = std::min(end + *rc::gen::element(0, 1, 30), columns - 1);
  }
  Band last{{*rc::gen::inRange<int64_t>(0, 40), rows}, {begin, columns}};
  last.hi = *rc::gen::inRange<int64_t>(-100, 300);
  if (*rc::gen::inRange(0, 2) == 0) last.lo = last.hi - *rc::gen::inRange<int64_t>(0, 300);
  bands.push_back(last);
  const Mask mask(rows, columns, bands);
  const auto width = *rc::gen::inRange(1, 60);
  const TileShape shape{*rc::gen::element(1, width, 2 * width, *rc::gen::inRange(1, 40)), width};
  const TileMap map = lower(mask, shape);
  const Matrix expected = longspan::matrix_of(mask);
  RC_ASSERT(matrix_of(map) == expected);
  check_structure(map, mask);
  check_kinds(map, expected);
}

TEST(HeaviestFirst, SortsStably) {
  const auto sorted = [](std::vector<uint32_t> costs, uint32_t most_costs) {
    sort_heaviest_first(std::span(costs), std::identity(), most_costs);
    return costs;
  };
  using Costs = std::vector<uint32_t>;
  EXPECT_EQ(sorted({}, 100), Costs{});
  EXPECT_EQ(sorted({7, 7, 3}, 100), (Costs{7, 7, 3}));
  EXPECT_EQ(sorted({1, 9, 9, 0, 4, 1}, 100), (Costs{9, 9, 4, 1, 1, 0}));
  EXPECT_EQ(sorted({4, 7, 15, 0, 6}, 4), (Costs{15, 4, 7, 6, 0}));  // 4, 6 and 7 share their leading two bits
}

// sketch() followed by draw() gives the same map as lower().
RC_GTEST_PROP(TileMap, SketchedAndDrawn, ()) {
  const Mask mask = random_mask();
  const TileShape shape{*rc::gen::inRange(1, 48), *rc::gen::inRange(1, 48)};
  const TileMap map = lower(mask, shape);
  const TileSketch sketched = sketch(mask, shape);
  RC_ASSERT(sketched.map.partials.empty());
  RC_ASSERT(sketched.map.tiles == map.tiles);
  const TileMap drawn = draw(sketched);
  RC_ASSERT(drawn == map);
  check_structure(drawn, mask);
}

void expect_transposed(const Mask& mask, TileShape shape) {
  RC_ASSERT(lower_transposed(mask, shape) == lower(mask.transposed(), shape));
}

RC_GTEST_PROP(TileMap, OfTheTransposedMask, ()) {
  expect_transposed(random_mask(), {*rc::gen::inRange(1, 48), *rc::gen::inRange(1, 48)});
}

// Blocks that are multiples of the tile (except at the ends of the mask), and blocks that are not.
RC_GTEST_PROP(TileMap, OfTheTransposedMaskOfBlocks, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(1, 40), columns = *rc::gen::inRange<int64_t>(1, 40);
  std::vector<Band> bands;
  for (int64_t i = 0; i < rows; i += 4)
    for (int64_t j = 0; j < columns; j += 6)
      if (*rc::gen::inRange(0, 3) != 0)
        bands.push_back({{i, std::min(i + 4, rows)}, {j, std::min(j + 6, columns)}});
  for (const TileShape shape :
       {TileShape{6, 4}, TileShape{3, 2}, TileShape{2, 4}, TileShape{4, 4}, TileShape{6, 3}})
    expect_transposed(Mask(rows, columns, bands), shape);
}

int64_t area_shown(const TileMap& map) {
  int64_t area = 0;
  for (const Run& run : map.runs)
    area += run.full() ? int64_t{run.count()} * map.shape.rows * map.shape.columns
                       : map.partials.at(static_cast<size_t>(run.partial())).area;
  return area;
}

// More partial tiles than the initial cache holds, and more spans than one chunk of memory holds.
TEST(TileMap, OfManyPartialTiles) {
  constexpr int64_t kRows = 144000, kColumns = 1500;
  std::vector<Band> bands;
  for (int64_t i = 0; i < kRows / 8; ++i) {
    bands.push_back({{i * 8, i * 8 + 1 + i % 8}, {i % 257, i % 257 + 100 + i % 500}});
    bands.push_back(
        {{i * 8, i * 8 + 1 + i % 7}, {900 + i % 31, 1500}, kUnboundedBelow, 1400 - i * 8 + i % 5});
  }
  const Mask mask(kRows, kColumns, bands);
  const TileMap map = lower(mask, {240, 300});
  EXPECT_GT(map.partials.size(), 1024u);
  EXPECT_GT(map.spans.size(), size_t{1} << 18);
  EXPECT_EQ(map.area, mask.area());
  EXPECT_EQ(area_shown(map), mask.area());
}

// Small tiles under many small bands: tiles of several pieces and layers.
RC_GTEST_PROP(TileMap, JoinsThePiecesOfManyBands, ()) {
  std::vector<Band> bands;
  const auto cell = *rc::gen::inRange<int64_t>(1, 5);
  for (int64_t i = 0; i < 12; ++i)
    for (int64_t j = 0; j < 12; ++j)
      if (*rc::gen::inRange(0, 3) != 0)
        bands.push_back({{i * cell, (i + 1) * cell}, {j * cell, (j + 1) * cell}});
  const Mask mask(12 * cell, 12 * cell, bands);
  const TileShape shape{*rc::gen::inRange(1, 20), *rc::gen::inRange(1, 20)};
  const TileMap map = lower(mask, shape);
  const Matrix expected = longspan::matrix_of(mask);
  RC_ASSERT(matrix_of(map) == expected);
  check_structure(map, mask);
  check_kinds(map, expected);
}

TEST(TileMap, ShapesOfRealKernels) {
  const int64_t n = 1000;
  const std::vector<Mask> masks = {
      Mask(n, n, {{{0, n}, {0, n}, kUnboundedBelow, 0}}),
      Mask(n, n, {{{0, n}, {0, n}, -100, 30}}),
      Mask(n, n, {{{0, 300}, {0, 300}, kUnboundedBelow, 0}, {{300, 777}, {300, 777}}, {{900, n}, {10, 500}}}),
      Mask(513, n, {{{64, 128}, {0, n}}, {{200, 400}, {100, 900}, 0, kUnboundedAbove}}),
  };
  for (const TileShape shape : {TileShape{64, 64},
                                {128, 176},
                                {128, 128},
                                {192, 128},
                                {64, 128},
                                {1, 1},
                                {1, 999},
                                {2000, 2000},
                                {65535, 65535}}) {
    for (const Mask& mask : masks) {
      for (const Mask& side : {mask, mask.transposed()}) {
        const TileMap map = lower(side, shape);
        const Matrix expected = longspan::matrix_of(side);
        EXPECT_TRUE(matrix_of(map) == expected) << shape.rows << "x" << shape.columns;
        check_structure(map, side);
        check_kinds(map, expected);
      }
    }
  }
}

TEST(TileMap, CausalDiagonalIsOnePartial) {
  const int64_t n = 1 << 20;
  const TileMap map = lower(Mask(n, n, {{{0, n}, {0, n}, kUnboundedBelow, 0}}), {128, 128});
  ASSERT_EQ(map.partials.size(), 1u);
  EXPECT_EQ(map.partials[0].area, 128 * 129 / 2);
  EXPECT_EQ(map.runs.size(), 2u * 8192 - 1);
  EXPECT_EQ(map.runs_of(5)[0], (longspan::Run{0, 5}));
  EXPECT_EQ(map.runs_of(5)[1], (longspan::Run{5, 0}));
  EXPECT_EQ(map.order.front(), 8191);
  EXPECT_LT(map.bytes(), 400u << 10);
}

TEST(TileMap, EdgeTilesOfAFullMaskAreFull) {
  const TileMap map = lower(Mask(130, 1000, {{{0, 130}, {0, 1000}}}), {128, 128});
  EXPECT_TRUE(map.partials.empty());
  ASSERT_EQ(map.runs.size(), 2u);
  EXPECT_EQ(map.runs[1], (longspan::Run{0, 8}));
}

TEST(TileMap, OfNothing) {
  for (const Mask& mask : {Mask(), Mask(0, 100, std::vector<Band>{}), Mask(100, 0, std::vector<Band>{}),
                           Mask(100, 100, std::vector<Band>{})}) {
    const TileMap map = lower(mask, {64, 64});
    EXPECT_TRUE(map.runs.empty());
    EXPECT_EQ(map.area, 0);
    EXPECT_EQ(static_cast<int64_t>(map.offsets.size()), map.row_tiles() + 1);
  }
}

TEST(TileMap, RefusesShapesThatSpansCannotHold) {
  const Mask mask(8, 8, {{{0, 8}, {0, 8}}});
  EXPECT_THROW(lower(mask, {0, 64}), Error);
  EXPECT_THROW(lower(mask, {64, 65536}), Error);
}

}  // namespace
}  // namespace longspan
