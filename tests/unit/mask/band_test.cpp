// The algebra of one band, and the compact list of bands.
#include "mask/band.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "brute_force.h"

namespace longspan {
namespace {

TEST(Band, AreaOfTheCommonShapes) {
  EXPECT_EQ((Band{{0, 10}, {0, 20}}.area()), 200);
  EXPECT_EQ((Band{{0, 10}, {0, 10}, kUnboundedBelow, 0}.area()), 55);   // causal
  EXPECT_EQ((Band{{0, 10}, {0, 10}, 1, kUnboundedAbove}.area()), 45);   // the complement of causal
  EXPECT_EQ((Band{{0, 10}, {0, 10}, -2, 0}.area()), 27);                // a window
  EXPECT_EQ((Band{{0, 10}, {0, 10}, 3, 2}.area()), 0);                  // lo above hi
  EXPECT_EQ((Band{{5, 5}, {0, 10}}.area()), 0);                         // no rows
  EXPECT_EQ((Band{{0, 10}, {0, 10}, 100, kUnboundedAbove}.area()), 0);  // beyond the rectangle
  EXPECT_EQ((Band{{0, 10}, {0, 10}, kUnboundedBelow, -100}.area()), 0);
}

TEST(Band, AreaOfTheLargestMaskIsExact) {
  const int64_t n = kMaxTokens;
  EXPECT_EQ((Band{{0, n}, {0, n}}.area()), n * n);
  EXPECT_EQ((Band{{0, n}, {0, n}, kUnboundedBelow, 0}.area()), n * (n + 1) / 2);
  EXPECT_EQ((Band{{0, n}, {0, n}, -(n - 1), n - 1}.area()), n * n);
  EXPECT_EQ((Band{{0, n}, {0, n}, -(n - 2), n - 2}.area()), n * n - 2);
}

TEST(Band, AnyBoundIsHarmless) {
  for (int64_t bound : {kUnboundedBelow + 1, kUnboundedBelow + 7, kUnboundedAbove - 1, kUnboundedAbove - 7}) {
    const Band below{{0, 8}, {0, 8}, bound, kUnboundedAbove}, above{{0, 8}, {0, 8}, kUnboundedBelow, bound};
    EXPECT_EQ(below.area(), bound < 0 ? 64 : 0);
    EXPECT_EQ(above.area(), bound < 0 ? 0 : 64);
    EXPECT_EQ(below.columns(3).size(), bound < 0 ? 8 : 0);
    EXPECT_EQ(above.columns(3).size(), bound < 0 ? 0 : 8);
    EXPECT_EQ(below.empty(), bound > 0);
    EXPECT_EQ(above.empty(), bound < 0);
  }
}

TEST(Band, WritesItselfAsMaskFilesDo) {
  EXPECT_EQ(to_string(Band{{0, 8}, {1, 9}}), "[0,8,1,9,null,null]");
  EXPECT_EQ(to_string(Band{{0, 8}, {1, 9}, -3, 0}), "[0,8,1,9,-3,0]");
}

RC_GTEST_PROP(Band, AreaAndColumnsAreThoseOfTheDefinition, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(0, 24), columns = *rc::gen::inRange<int64_t>(0, 24);
  const Band band = random_band(rows, columns);
  const Matrix matrix = matrix_of_bands(rows, columns, std::vector{band});
  RC_ASSERT(band.area() == matrix.area());
  RC_ASSERT(band.empty() == (matrix.area() == 0));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) RC_ASSERT(band.columns(i).contains(j) == (matrix.at(i, j) == 1));
}

RC_GTEST_PROP(Band, NormalFormShowsTheSameAndIsUnique, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(0, 8), columns = *rc::gen::inRange<int64_t>(0, 8);
  const Band a = random_band(rows, columns), b = random_band(rows, columns);
  const Matrix matrix_a = matrix_of_bands(rows, columns, std::vector{a});
  const Matrix matrix_b = matrix_of_bands(rows, columns, std::vector{b});
  const Band normal = a.normalized();
  RC_ASSERT(matrix_of_bands(rows, columns, std::vector{normal}) == matrix_a);
  RC_ASSERT(normal.normalized() == normal);
  RC_ASSERT((normal == b.normalized()) == (matrix_a == matrix_b));
  if (!normal.q.empty()) {
    RC_ASSERT(!normal.columns(normal.q.begin).empty());
    RC_ASSERT(!normal.columns(normal.q.end - 1).empty());
  }
}

RC_GTEST_PROP(Band, IntersectionShowsWhatBothShow, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(0, 16), columns = *rc::gen::inRange<int64_t>(0, 16);
  const Band a = random_band(rows, columns), b = random_band(rows, columns), both = intersection(a, b);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      RC_ASSERT(both.columns(i).contains(j) == (shows(a, i, j) && shows(b, i, j)));
}

RC_GTEST_PROP(BandList, GivesBackWhatWasAppended, ()) {
  const auto count = *rc::gen::inRange(0, 40);
  std::vector<Band> bands;
  BandList list;
  for (int n = 0; n < count; ++n) {
    Band band = random_band(100, 100);
    if (!bands.empty() && *rc::gen::arbitrary<bool>()) band.q = bands.back().q;
    bands.push_back(band);
    list.append(band);
  }
  RC_ASSERT(list.size() == bands.size());
  RC_ASSERT(std::vector<Band>(list.begin(), list.end()) == bands);
  for (size_t i = 0; i < bands.size(); ++i) RC_ASSERT(list[i] == bands[i]);
}

TEST(BandList, TellsWhetherRowsAreAlike) {
  BandList list;
  EXPECT_FALSE(list.rows_are_alike(8));
  list.append({{0, 8}, {0, 4}});
  list.append({{0, 8}, {6, 8}});
  EXPECT_TRUE(list.rows_are_alike(8));
  EXPECT_FALSE(list.rows_are_alike(9));  // the last row sees nothing
  list.append({{8, 9}, {0, 4}});
  EXPECT_FALSE(list.rows_are_alike(9));
  BandList causal;
  causal.append({{0, 8}, {0, 8}, kUnboundedBelow, 0});
  EXPECT_FALSE(causal.rows_are_alike(8));
}

TEST(BandList, TellsWhetherLaterRowsSeeMore) {
  const auto of = [](int64_t lo, int64_t hi) {
    BandList list;
    list.append({{0, 8}, {0, 8}});
    list.append({{8, 16}, {8, 16}, lo, hi});
    return list.later_rows_see_more();
  };
  EXPECT_TRUE(of(kUnboundedBelow, 0));
  EXPECT_FALSE(of(-3, 0));  // a window
  EXPECT_FALSE(of(0, kUnboundedAbove));
  EXPECT_FALSE(of(kUnboundedBelow, kUnboundedAbove));
}

}  // namespace
}  // namespace longspan
