// Masks compared with boolean matrices.
#include "mask/mask.h"

#include <functional>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "brute_force.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(Mask, IsEmptyByDefault) {
  Mask mask;
  EXPECT_EQ(mask.area(), 0);
  EXPECT_TRUE(mask.bands().empty());
  EXPECT_TRUE(mask.visible_counts().empty());
  EXPECT_EQ(mask, Mask(0, 0, std::vector<Band>{}));
}

TEST(Mask, NormalizesItsBands) {
  // A window as wide as the mask has no effect; bands are sorted and clipped, and empty ones dropped.
  const Mask mask(10, 10,
                  {{{5, 99}, {-3, 10}, -50, 50}, {{3, 3}, {0, 10}}, {{0, 5}, {0, 10}, kUnboundedBelow, 0}});
  const std::vector<Band> expected = {{{0, 5}, {0, 5}, kUnboundedBelow, 0}, {{5, 10}, {0, 10}}};
  EXPECT_EQ(std::vector<Band>(mask.bands().begin(), mask.bands().end()), expected);
}

TEST(Mask, NamesOverlappingBands) {
  const std::string message = message_of([] {
    Mask(100, 100,
         {{{0, 10}, {0, 10}}, {{20, 30}, {0, 90}, -9, 0}, {{40, 50}, {0, 9}}, {{29, 35}, {25, 99}}});
  });
  EXPECT_EQ(
      message,
      "bands 1 [20,30,0,90,-9,0] and 3 [29,35,25,99,null,null] overlap: both show row 29, column 25; the "
      "bands of a mask must be disjoint");
}

// A diagonal and a rectangle overlap in row 10. A third band separates them until row 3 and they become
// neighbours only when it ends.
TEST(Mask, FindsAnOverlapBehindABandThatEnded) {
  const Band diagonal{{0, 20}, {0, 20}, 0, 0}, between{{0, 3}, {8, 9}}, wall{{0, 20}, {10, 11}};
  EXPECT_THAT(message_of([&] {
                Mask(20, 20, {diagonal, between, wall});
              }),
              HasSubstr("both show row 10, column 10"));
  EXPECT_EQ(Mask(20, 20, {diagonal, between}).area(), 23);
}

TEST(Mask, NamesMalformedBandsAndSizes) {
  EXPECT_THAT(message_of([] { Mask(9, 9, {{{5, 4}, {0, 9}}}); }), HasSubstr("band 0 [5,4,0,9,null,null]"));
  EXPECT_THAT(message_of([] {
                Mask(9, 9, {{{0, 1}, {0, 9}}, {{2, 3}, {0, 9}, 5, 4}});
              }),
              HasSubstr("band 1 [2,3,0,9,5,4]: lo must not be above hi"));
  EXPECT_THAT(message_of([] { Mask(-1, 9, std::vector<Band>{}); }),
              HasSubstr("-1 rows: must be 0 to 2147483647"));
  EXPECT_THAT(message_of([] { Mask(9, int64_t{1} << 40, std::vector<Band>{}); }),
              HasSubstr("columns: must be"));
}

TEST(Mask, RefusesRowsAndRangesOutside) {
  const Mask mask(4, 6, {{{0, 4}, {0, 6}}});
  EXPECT_THROW(mask.visible_keys(4), Error);
  EXPECT_THROW(mask.visible_count(-1), Error);
  const std::vector<Range> rows = {{0, 4}}, columns = {{0, 6}};
  EXPECT_THROW(mask.gather(std::vector<Range>{{0, 5}}, columns), Error);
  EXPECT_THROW(mask.gather(rows, std::vector<Range>{{0, 3}, {2, 4}}), Error);
}

TEST(Mask, OfTheLargestSizeIsOneBand) {
  const Mask causal(kMaxTokens, kMaxTokens, {{{0, kMaxTokens}, {0, kMaxTokens}, kUnboundedBelow, 0}});
  EXPECT_EQ(causal.bands().size(), 1u);
  EXPECT_EQ(causal.area(), kMaxTokens * (kMaxTokens + 1) / 2);
  EXPECT_EQ(causal.transposed().bands()[0], (Band{{0, kMaxTokens}, {0, kMaxTokens}, 0, kUnboundedAbove}));
  const std::vector<Range> end = {{kMaxTokens - 2, kMaxTokens}}, all = {{0, kMaxTokens}};
  EXPECT_EQ(causal.gather(end, all).visible_count(0), kMaxTokens - 1);
}

TEST(Mask, SearchesARowAmongManyGroups) {
  // One band over all rows and many short ones: the search for a row must not miss the long band.
  std::vector<Band> bands = {{{0, 1000}, {0, 1}}};
  for (int64_t row = 0; row < 1000; row += 2) bands.push_back({{row, row + 2}, {2 + row, 4 + row}});
  const Mask mask(1000, 1004, bands);
  for (int64_t row = 0; row < 1000; ++row) {
    EXPECT_EQ(mask.visible_count(row), 3);
    EXPECT_TRUE(mask.visible(row, 0));
    EXPECT_EQ(mask.visible_keys(row).back(), (Range{2 + row / 2 * 2, 4 + row / 2 * 2}));
  }
}

RC_GTEST_PROP(Mask, AnswersAsItsMatrix, ()) {
  const Mask mask = random_mask();
  const Matrix matrix = matrix_of(mask);
  RC_ASSERT(std::count_if(matrix.cells.begin(), matrix.cells.end(), [](auto n) { return n > 1; }) == 0);
  RC_ASSERT(mask.area() == matrix.area());
  const auto counts = mask.visible_counts();
  RC_ASSERT(static_cast<int64_t>(counts.size()) == mask.rows());
  for (int64_t i = 0; i < mask.rows(); ++i) {
    std::vector<Range> expected;
    int64_t count = 0;
    for (int64_t j = 0; j < mask.columns(); ++j) {
      RC_ASSERT(mask.visible(i, j) == (matrix.at(i, j) == 1));
      if (!matrix.at(i, j)) continue;
      ++count;
      if (!expected.empty() && expected.back().end == j)
        ++expected.back().end;
      else
        expected.push_back({j, j + 1});
    }
    RC_ASSERT(mask.visible_keys(i) == expected);
    RC_ASSERT(mask.visible_count(i) == count);
    RC_ASSERT(counts[i] == count);
  }
}

RC_GTEST_PROP(Mask, KeepsItsBandsSortedAndNormal, ()) {
  const Mask mask = random_mask();
  Band before{};
  for (const Band& band : mask.bands()) {
    RC_ASSERT(band.normalized() == band);
    RC_ASSERT(std::tie(before.q.begin, before.k.begin, before.lo) <=
              std::tie(band.q.begin, band.k.begin, band.lo));
    before = band;
  }
  // A list that is already in order is used as it is, and gives the same mask.
  RC_ASSERT(Mask(mask.rows(), mask.columns(), mask.bands()) == mask);
}

RC_GTEST_PROP(Mask, FindsEveryOverlap, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(1, 24), columns = *rc::gen::inRange<int64_t>(1, 24);
  std::vector<Band> bands;
  for (int n = *rc::gen::inRange(1, 6); n > 0; --n) bands.push_back(random_band(rows, columns));
  for (Band& band : bands)
    if (band.lo > band.hi) std::swap(band.lo, band.hi);
  const Matrix matrix = matrix_of_bands(rows, columns, bands);
  const bool overlapping =
      std::any_of(matrix.cells.begin(), matrix.cells.end(), [](auto shown) { return shown > 1; });
  RC_CLASSIFY(overlapping);
  bool refused = false;
  try {
    Mask(rows, columns, bands);
  } catch (const Error& error) {
    refused = std::string(error.what()).find("overlap") != std::string::npos;
  }
  RC_ASSERT(refused == overlapping);
}

// One extra band in a mask of many: the sweep must find the overlap wherever it is.
RC_GTEST_PROP(Mask, FindsOneOverlapAmongMany, ()) {
  const Mask mask = random_mask(60, 60, 60);
  Band extra = random_band(60, 60);
  if (extra.lo > extra.hi) std::swap(extra.lo, extra.hi);
  std::vector<Band> bands(mask.bands().begin(), mask.bands().end());
  bands.push_back(extra);
  const Matrix matrix = matrix_of_bands(60, 60, bands);
  const bool overlapping =
      std::any_of(matrix.cells.begin(), matrix.cells.end(), [](auto shown) { return shown > 1; });
  bool refused = false;
  try {
    Mask(60, 60, bands);
  } catch (const Error&) {
    refused = true;
  }
  RC_ASSERT(refused == overlapping);
}

RC_GTEST_PROP(Mask, GathersRowsAndColumns, ()) {
  const Mask mask = random_mask();
  const Matrix matrix = matrix_of(mask);
  const auto q_ranges = random_ranges(mask.rows()), k_ranges = random_ranges(mask.columns());
  std::vector<int64_t> rows, columns;
  for (const Range& range : q_ranges)
    for (int64_t i = range.begin; i < range.end; ++i) rows.push_back(i);
  for (const Range& range : k_ranges)
    for (int64_t j = range.begin; j < range.end; ++j) columns.push_back(j);

  const Mask shard = mask.gather(q_ranges, k_ranges);
  RC_ASSERT(shard.rows() == static_cast<int64_t>(rows.size()));
  RC_ASSERT(shard.columns() == static_cast<int64_t>(columns.size()));
  Matrix expected(shard.rows(), shard.columns());
  for (int64_t i = 0; i < shard.rows(); ++i)
    for (int64_t j = 0; j < shard.columns(); ++j) expected.at(i, j) = matrix.at(rows[i], columns[j]);
  RC_ASSERT(matrix_of(shard) == expected);
  RC_ASSERT(Mask(shard.rows(), shard.columns(), shard.bands()) == shard);  // sorted, normalised and disjoint
}

TEST(Mask, GatherJoinsWhatItCutApart) {
  const Range everything{0, 100};
  const Mask full(100, 100, {{everything, everything}});
  const std::vector<Range> pieces = {{50, 60}, {10, 20}, {20, 50}, {90, 100}};
  EXPECT_EQ(full.gather(pieces, pieces), Mask(60, 60, {{{0, 60}, {0, 60}}}));
  // Late rows against early columns of a causal mask.
  Band below{everything, everything};
  below.hi = 0;
  const Mask causal(100, 100, {below});
  const std::vector<Range> late = {{80, 90}, {60, 70}}, early = {{30, 40}, {0, 10}, {20, 30}};
  EXPECT_EQ(causal.gather(late, early), Mask(20, 30, {{{0, 20}, {0, 30}}}));
}

RC_GTEST_PROP(Mask, GatherOfEverythingIsTheMask, ()) {
  const Mask mask = random_mask();
  const auto cut = *rc::gen::inRange<int64_t>(0, mask.rows() + 1);
  const std::vector<Range> rows = {{0, cut}, {cut, mask.rows()}}, columns = {{0, mask.columns()}};
  RC_ASSERT(mask.gather(rows, columns) == mask);
}

RC_GTEST_PROP(Mask, TransposesRowsAndColumns, ()) {
  const Mask mask = random_mask(), transposed = mask.transposed();
  const Matrix matrix = matrix_of(mask), flipped = matrix_of(transposed);
  RC_ASSERT(transposed.rows() == mask.columns());
  RC_ASSERT(transposed.columns() == mask.rows());
  for (int64_t i = 0; i < mask.rows(); ++i)
    for (int64_t j = 0; j < mask.columns(); ++j) RC_ASSERT(flipped.at(j, i) == matrix.at(i, j));
  RC_ASSERT(Mask(transposed.rows(), transposed.columns(), transposed.bands()) == transposed);
  RC_ASSERT(transposed.transposed() == mask);
}

}  // namespace
}  // namespace longspan
