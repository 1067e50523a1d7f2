// Masks from dense matrices, and intersections of masks, against their dense forms.
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "mask/mask.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

constexpr int64_t kTokens = 96;

std::vector<Mask> patterns_of(int64_t tokens) {
  std::vector<Mask> masks;
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = tokens;
    if (pattern.documents) options.lengths = "uniform:1:40";
    if (pattern.suit_length != nullptr) pattern.suit_length(options);
    masks.push_back(draw_mask(pattern.name, options).masks.front());
  }
  return masks;
}

std::vector<uint8_t> both(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  std::vector<uint8_t> common(a.size());
  for (size_t i = 0; i < a.size(); ++i) common[i] = a[i] & b[i];
  return common;
}

TEST(MaskCombine, DenseShowsWhatTheMaskShows) {
  for (const Mask& mask : patterns_of(kTokens)) {
    const std::vector<uint8_t> dense = mask.dense();
    for (int64_t row = 0; row < mask.rows(); ++row)
      for (int64_t column = 0; column < mask.columns(); ++column)
        ASSERT_EQ(dense[static_cast<size_t>(row * mask.columns() + column)] != 0, mask.visible(row, column));
  }
}

TEST(MaskCombine, EveryPatternComesBackFromItsDenseForm) {
  for (const Mask& mask : patterns_of(kTokens)) {
    const Mask back = Mask::from_dense(mask.dense().data(), mask.rows(), mask.columns());
    EXPECT_EQ(back.dense(), mask.dense());
    EXPECT_EQ(back.area(), mask.area());
  }
}

TEST(MaskCombine, ADenseFormOfFewBandsGivesFewBands) {
  const auto bands_of = [](const Mask& mask) {
    return Mask::from_dense(mask.dense().data(), mask.rows(), mask.columns()).band_vector();
  };
  const int64_t lengths[] = {30, 41, 25};
  for (const Mask& mask : {Mask::window(kTokens), Mask::window(kTokens, kUnboundedAbove, 0),
                           Mask::window(kTokens, 0, kUnboundedAbove), Mask::documents(lengths),
                           Mask::documents(lengths, kUnboundedAbove, 0)})
    EXPECT_EQ(bands_of(mask), mask.band_vector());
  EXPECT_LE(bands_of(Mask::window(kTokens, 10, 5)).size(),
            3u);  // at the ends, a window begins or ends at one key
}

TEST(MaskCombine, IntersectionsShowWhatBothShow) {
  const std::vector<Mask> masks = patterns_of(kTokens);
  for (const Mask& a : masks)
    for (const Mask& b : masks) {
      const Mask common = a.intersected(b);
      ASSERT_EQ(common.dense(), both(a.dense(), b.dense()));
    }
}

RC_GTEST_PROP(MaskCombine, AnyMatrixComesBack, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(0, 12), columns = *rc::gen::inRange<int64_t>(0, 12);
  const auto matrix = *rc::gen::container<std::vector<uint8_t>>(static_cast<size_t>(rows * columns),
                                                                rc::gen::element<uint8_t>(0, 0, 1));
  const auto other = *rc::gen::container<std::vector<uint8_t>>(static_cast<size_t>(rows * columns),
                                                               rc::gen::element<uint8_t>(0, 1));
  const Mask mask = Mask::from_dense(matrix.data(), rows, columns);
  RC_ASSERT(mask.dense() == matrix);
  RC_ASSERT(mask.intersected(Mask::from_dense(other.data(), rows, columns)).dense() == both(matrix, other));
}

TEST(MaskCombine, WrongInputIsAnError) {
  EXPECT_THROW(Mask::window(8).intersected(Mask::window(9)), Error);
  EXPECT_THROW(Mask::from_dense(nullptr, 2, 2), Error);
  EXPECT_THROW(Mask::from_dense(nullptr, -1, 2), Error);
}

}  // namespace
}  // namespace longspan
