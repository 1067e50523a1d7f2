// The forward kernel's map shows exactly the pairs that the mask shows, and its tile cuts are correct.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "kernels/sm90/forward/planner/map.h"
#include "mask/lowering/row_tile_costs.h"
#include "mask/patterns/patterns.h"
#include "unit/mask/brute_force.h"

namespace longspan::sm90 {
namespace {

using Pairs = std::vector<char>;  // [rows, columns]: how often each is shown

// Reads the map of one mask as the kernel does, and checks each tile's cut.
class Reader {
 public:
  Reader(const ForwardMap& map, size_t mask, TileShape shape, const Mask& of)
      : map_(map),
        work_(map.work.data() + mask * static_cast<size_t>(map.row_tiles)),
        shape_(shape),
        rows_(of.rows()),
        columns_(of.columns()),
        pairs_(static_cast<size_t>(rows_ * columns_), 0) {}

  Pairs read() {
    std::vector<char> seen(static_cast<size_t>(rows_), 0);
    for (int32_t position = 0; position < map_.row_tiles; ++position) {
      const MapRow& row = work_[position];
      for (uint32_t r = 0; r < row.rows; ++r) ++seen.at(static_cast<size_t>(row.first_row) + r);
      if (row.rows == 0) {
        EXPECT_EQ(row.entries, 0) << "row tile " << position << " has keys, but no rows";
      }
      read(row);
    }
    EXPECT_THAT(seen, testing::Each(1)) << "a row is in no row tile, or in two";
    return pairs_;
  }

  int64_t tiles() const { return tiles_; }
  int64_t steps() const { return steps_; }

 private:
  void read(const MapRow& row) {
    first_row_ = row.first_row;
    height_ = row.rows;
    int64_t covered = 0;
    for (int32_t i = 0; i < row.entries; ++i) {
      const MapEntry& entry = map_.entries.at(row.first_entry + static_cast<uint32_t>(i));
      if (entry.code == 0) continue;
      EXPECT_GE(entry.column, covered) << "tiles overlap";
      if (entry.code > 0) {
        covered = entry.column + int64_t{entry.code} * shape_.columns;
        tiles_ += entry.code;
        steps_ += int64_t{entry.code} * shape_.columns / kStepKeys;
        for (int64_t r = 0; r < height_; ++r)
          for (int64_t column = entry.column; column < covered; ++column) show(r, column);
        continue;
      }
      EXPECT_NE(i % kEntryBatch, kEntryBatch - 1) << "a partial tile's entries are in two batches";
      ++i;
      const MapEntry& second = map_.entries.at(row.first_entry + static_cast<uint32_t>(i));
      const TileCut cut(static_cast<uint32_t>(second.column));
      read_partial(entry.column, cut, second.code);
      covered = int64_t{entry.column} + cut.steps() * kStepKeys;
    }
  }

  void read_partial(int64_t column, TileCut cut, int32_t first_layer) {
    ++tiles_;
    steps_ += cut.steps();
    std::vector<int> in_step(16, 0);
    bool first_column_seen = false;
    for (int64_t r = 0; r < height_; ++r)
      for (int32_t layer = first_layer; layer < first_layer + cut.layers(); ++layer) {
        const Span span = map_.spans.at(static_cast<size_t>(int64_t{layer} * shape_.rows + r));
        for (int32_t c = span.begin; c < span.end; ++c) {
          show(r, column + c);
          ++in_step[static_cast<size_t>(c / kStepKeys)];
          first_column_seen |= c == 0;
        }
      }
    EXPECT_TRUE(first_column_seen) << "a tile begins where nothing is visible";
    EXPECT_LE(cut.steps() * kStepKeys, shape_.columns);
    EXPECT_GT(in_step[static_cast<size_t>(cut.steps() - 1)], 0) << "the last step is empty";
    for (int step = 0; step < 16; ++step) {
      if (step >= cut.steps()) {
        EXPECT_EQ(in_step[static_cast<size_t>(step)], 0) << "step " << step;
      }
      const bool whole = in_step[static_cast<size_t>(step)] == height_ * kStepKeys;
      EXPECT_EQ(cut.cut_steps() >> step & 1, whole ? 0U : 1U) << "step " << step;
    }
  }

  void show(int64_t r, int64_t column) {
    if (column >= columns_)
      ADD_FAILURE() << first_row_ + r << ", " << column << " lies outside the mask";
    else
      ++pairs_[static_cast<size_t>((first_row_ + r) * columns_ + column)];
  }

  const ForwardMap& map_;
  const MapRow* work_;
  TileShape shape_;
  int64_t rows_, columns_;
  Pairs pairs_;
  int64_t first_row_ = 0, height_ = 0, tiles_ = 0, steps_ = 0;
};

void expect_same_pairs(const HeadMasks& masks, TileShape shape, RowTiles row_tiles = RowTiles::kEven) {
  const ForwardMap map = lower_forward(masks, shape, row_tiles);
  int64_t tiles = 0, steps = 0;
  for (size_t i = 0; i < masks.size(); ++i) {
    const Mask& mask = masks[i];
    Pairs expected(static_cast<size_t>(mask.rows() * mask.columns()), 0);
    for (int64_t row = 0; row < mask.rows(); ++row)
      for (const Range& keys : mask.visible_keys(row))
        for (int64_t column = keys.begin; column < keys.end; ++column)
          expected[static_cast<size_t>(row * mask.columns() + column)] = 1;
    Reader reader(map, i, shape, mask);
    EXPECT_TRUE(reader.read() == expected) << "mask " << i;
    tiles += reader.tiles();
    steps += reader.steps();
  }
  EXPECT_EQ(map.tiles, tiles);
  EXPECT_EQ(map.steps, steps);
}

TEST(ForwardMap, ShowsThePairsOfEveryPattern) {
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(std::string(pattern.name));
    PatternOptions options;
    options.seqlen = 1024;
    options.lengths = "uniform:20:300";
    if (pattern.block_sparse) options.values.set("block", 128), options.kv_heads = 2;
    const DrawnMask drawn = draw_mask(pattern.name, options);
    expect_same_pairs(drawn.masks, {16, 128});
    expect_same_pairs(drawn.masks, {64, 160});
    expect_same_pairs(drawn.masks, {128, 64});
    expect_same_pairs(drawn.masks, {kMostTileRows, 64});
    expect_same_pairs(drawn.masks, {16, 160}, RowTiles::kOfBlocks);
    expect_same_pairs(drawn.masks, {64, 64}, RowTiles::kOfBlocks);
  }
}

TEST(ForwardMap, KeepsMasksOfSeveralHeadsApart) {
  const Mask causal(100, 100, std::vector<Band>{{{0, 100}, {0, 100}, kUnboundedBelow, 0}});
  const Mask window(100, 100, std::vector<Band>{{{0, 100}, {0, 100}, -7, 3}});
  const Mask nothing(100, 100, std::vector<Band>{});
  expect_same_pairs({causal, window, nothing, causal}, {16, 64});
}

TEST(ForwardMap, KeepsSeveralIntervalsOfARowInOneTile) {
  std::vector<Band> bands;
  for (int64_t c = 0; c < 128; c += 10) bands.push_back({{3, 40}, {c, c + 4}});
  expect_same_pairs({Mask(50, 130, bands)}, {16, 128});
}

TEST(ForwardMap, KeepsTheEntriesOfAPartialTileInOneBatch) {
  std::vector<Band> bands;
  for (int64_t c = 0; c < 4000; c += 40) bands.push_back({{0, 20}, {c, c + 21}});
  expect_same_pairs({Mask(20, 4000, bands)}, {16, 32});
}

// Masks of many bands are lowered in ranges of row tiles. A causal band that goes on through the next range
// must not be followed into it.
TEST(ForwardMap, EndsEachRangeOfRowTilesOfAMaskOfManyBands) {
  constexpr int64_t kBrief = 4100, kRows = 10000;  // enough bands for two ranges
  std::vector<Band> bands;
  for (int64_t row = 0; row < kBrief; ++row) bands.push_back({{row, row + 1}, {0, 1 + row % 7}});
  bands.push_back({{kBrief, kRows}, {0, 600}, kUnboundedBelow, -kBrief});
  expect_same_pairs({Mask(kRows, 600, bands)}, {16, 128});
  expect_same_pairs({Mask(kRows, 600, bands)}, {16, 128}, RowTiles::kOfBlocks);
}

RC_GTEST_PROP(ForwardMap, ShowsThePairsOfAnyMask, ()) {
  const Mask mask = random_mask();
  const TileShape shape{*rc::gen::inRange(1, 48), 16 * *rc::gen::inRange(1, 4)};
  expect_same_pairs({mask}, shape);
  expect_same_pairs({mask}, shape, RowTiles::kOfBlocks);
  RC_ASSERT(!testing::Test::HasFailure());
}

// Many row tiles, most of which follow from one that was lowered in full: under a diagonal, in a window, with
// other keys to their left or touching them, until the end of the mask cuts the band.
RC_GTEST_PROP(ForwardMap, ShowsThePairsOfRowTilesThatFollowFromOneAnother, ()) {
  const int64_t rows = *rc::gen::inRange(100, 700), columns = *rc::gen::inRange(100, 700);
  const int64_t gap = *rc::gen::element(0, 0, 1, 16, 40, 300);
  const int64_t prefixes = *rc::gen::inRange(0, 3);
  std::vector<Band> bands;
  int64_t begin = 0;
  for (int64_t i = 0; i < prefixes; ++i) {
    const int64_t end = std::min(begin + *rc::gen::inRange(1, 150), columns - 1);
    if (begin < end) bands.push_back({{0, rows}, {begin, end}});
    begin = std::min(end + *rc::gen::inRange(0, 40), columns - 1);
  }
  begin = std::min(begin + gap, columns - 1);
  Band last{{*rc::gen::inRange<int64_t>(0, 40), rows}, {begin, columns}};
  last.hi = *rc::gen::inRange<int64_t>(-100, 300);
  if (*rc::gen::arbitrary<bool>()) last.lo = last.hi - *rc::gen::inRange<int64_t>(0, 400);
  bands.push_back(last);
  const TileShape shape{*rc::gen::inRange(1, 40), 16 * *rc::gen::inRange(1, 11)};
  expect_same_pairs({Mask(rows, columns, bands)}, shape);
  expect_same_pairs({Mask(rows, columns, bands)}, shape, RowTiles::kOfBlocks);
  RC_ASSERT(!testing::Test::HasFailure());
}

TEST(ForwardMap, BeginsTilesWhereARowTilesKeysBegin) {
  const int64_t n = 4096;
  const Mask window(n, n, std::vector<Band>{{{0, n}, {0, n}, -1024, 0}});
  const ForwardMap map = lower_forward({window}, {16, 160});
  for (const MapRow& row : map.work) {
    const int64_t first = row.first_row;
    if (first < 1024) continue;
    EXPECT_EQ(map.entries[row.first_entry].column, first - 1024);
    // 1040 keys: a cut tile, five full ones, and 80 keys, the last 16 of which are cut.
    EXPECT_EQ(row.entries, 5);
    const TileCut first_cut(static_cast<uint32_t>(map.entries[row.first_entry + 1].column));
    EXPECT_EQ(first_cut.steps(), 10);
    EXPECT_EQ(first_cut.cut_steps() & 0x3ff, 1U);
    const TileCut last_cut(static_cast<uint32_t>(map.entries[row.first_entry + 4].column));
    EXPECT_EQ(last_cut.steps(), 5);
    EXPECT_EQ(last_cut.cut_steps() & 0x1f, 0x10U);
  }
  EXPECT_EQ(map.spans.size(),
            size_t{16} * 11);  // ten diagonals, one of which ends all windows, and the cut at their beginning
}

// 175 keys: 80, and two narrow tiles of 48 and 47 in place of one of 80 and a rest of 15. Of a rectangle 96
// keys are two narrow tiles, of a diagonal's rows 112 a tile and a rest.
TEST(ForwardMap, TakesTwoNarrowTilesForATileAndALittleMore) {
  const int64_t n = 4800;
  const auto columns_of = [&](const Band& band) {  // of the tiles of rows 480 to 528
    const ForwardMap map = lower_forward({Mask(n, n, std::vector<Band>{band})}, {48, 80});
    const MapRow row = *std::ranges::find(map.work, 480, &MapRow::first_row);
    std::vector<int64_t> columns;
    for (int32_t i = 0; i < row.entries; ++i) {
      const MapEntry& entry = map.entries[row.first_entry + static_cast<uint32_t>(i)];
      columns.push_back(entry.column);
      if (entry.code < 0) ++i;
    }
    return columns;
  };
  using testing::ElementsAre;
  EXPECT_THAT(columns_of({.q = {0, n}, .k = {0, n}, .lo = -127, .hi = 0}), ElementsAre(353, 433, 481));
  EXPECT_THAT(columns_of({.q = {0, n}, .k = {0, 256}}), ElementsAre(0, 160, 208));
  EXPECT_THAT(columns_of({.q = {0, n}, .k = {0, 257}}), ElementsAre(0, 240));
  EXPECT_THAT(columns_of({.q = {0, n}, .k = {0, n}, .hi = 0}), ElementsAre(0, 480));
  EXPECT_THAT(columns_of({.q = {0, n}, .k = {0, n}, .hi = 40}), ElementsAre(0, 480, 528));
}

TEST(ForwardMap, SharesTheEntriesOfRowTilesThatSeeTheSame) {
  const Mask full(4096, 4096, std::vector<Band>{{{0, 4096}, {0, 4096}}});
  const ForwardMap map = lower_forward({full}, {16, 160});
  EXPECT_EQ(map.entries.size(), 3U);  // 25 full tiles, and the two entries of the last 96 keys
  EXPECT_EQ(map.tiles, 256 * 26);
}

TEST(ForwardMap, HandsOutTheHeaviestRowTilesFirst) {
  const Mask causal(512, 512, std::vector<Band>{{{0, 512}, {0, 512}, kUnboundedBelow, 0}});
  const ForwardMap map = lower_forward({causal}, {128, 128});
  std::vector<int32_t> order;
  for (const MapRow& row : map.work) order.push_back(row.first_row / 128);
  EXPECT_THAT(order, testing::ElementsAre(3, 2, 1, 0));
}

// A low row tile costs as many keys as a whole one, so it lies where rows see the fewest.
TEST(ForwardMap, HasTheLowRowTileFirstBelowADiagonal) {
  using Rows = std::vector<std::pair<int32_t, uint32_t>>;  // first row, rows
  const auto rows_of = [](const std::vector<Band>& bands, RowTiles row_tiles, TileShape shape = {192, 80}) {
    const ForwardMap map = lower_forward({Mask(500, 500, bands)}, shape, row_tiles);
    Rows rows;
    for (const MapRow& row : map.work) rows.emplace_back(row.first_row, row.rows);
    std::ranges::sort(rows);
    return rows;
  };
  const Band causal{{0, 500}, {0, 500}, kUnboundedBelow, 0};
  EXPECT_EQ(rows_of({causal}, RowTiles::kEven), (Rows{{0, 116}, {116, 192}, {308, 192}}));
  // Here the diagonal would lie in two tiles of each row tile instead of one.
  EXPECT_EQ(rows_of({causal}, RowTiles::kEven, {128, 128}),
            (Rows{{0, 128}, {128, 128}, {256, 128}, {384, 116}}));
  const Band full{{0, 500}, {0, 500}};
  EXPECT_EQ(rows_of({full}, RowTiles::kEven), (Rows{{0, 192}, {192, 192}, {384, 116}}));
  const std::vector<Band> documents = {{{0, 200}, {0, 200}, kUnboundedBelow, 0},
                                       {{200, 500}, {200, 500}, kUnboundedBelow, 0}};
  EXPECT_EQ(rows_of(documents, RowTiles::kOfBlocks), (Rows{{0, 8}, {8, 192}, {200, 108}, {308, 192}}));
}

TEST(ForwardMap, CountsAboutTheKeysThatRowTileCostsEstimate) {
  for (const double density : {0.1, 0.5, 0.8}) {
    PatternOptions options;
    options.seqlen = 16384;
    options.values.set("block", 512).set("density", density);
    const HeadMasks masks = draw_mask("variable_block_sparse", options).masks;
    const RowTileCosts costs = row_tile_costs(masks, 128);
    const TileShape shape{128, 160};
    const auto of_map = [&](RowTiles row_tiles) {
      return static_cast<double>(lower_forward(masks, shape, row_tiles).steps) * kStepKeys;
    };
    const double even = of_map(RowTiles::kEven), of_blocks = of_map(RowTiles::kOfBlocks);
    // The map also counts the rest of a tile, in both cases.
    EXPECT_THAT(costs.even / costs.of_blocks, testing::DoubleNear(even / of_blocks, 0.04)) << density;
  }
}

}  // namespace
}  // namespace longspan::sm90
