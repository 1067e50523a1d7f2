#include "base/rng.h"

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "base/dtype.h"
#include "base/parallel.h"
#include "base/random_bits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace longspan {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers published by the generator's authors for 10 rounds: all zeros, all ones, digits of pi.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(BoxMuller, EndsAreFinite) {
  for (uint32_t a : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
    for (uint32_t b : {0u, 1u, 0x40000000u, 0x80000000u, 0xffffffffu}) {
      for (float x : box_muller(a, b)) {
        EXPECT_TRUE(std::isfinite(x));
        EXPECT_LT(std::abs(x), 6.8f);  // sqrt(2 * 33 * ln 2)
      }
    }
  }
  // Radius sqrt(2 ln 2) at the middle of [0, 1), angle a quarter of a turn.
  const auto quarter = box_muller(0x80000000u, 0x40000000u);
  EXPECT_NEAR(quarter[0], 0, 1e-6);
  EXPECT_NEAR(quarter[1], std::sqrt(2 * std::log(2.0)), 1e-6);
}

std::vector<float> normals(int64_t tokens, int64_t heads, int64_t dim, uint64_t seed, uint64_t stream) {
  std::vector<float> data(tokens * heads * dim);
  fill_normal(TensorView::contiguous(data.data(), DType::kF32, tokens, heads, dim), seed, stream);
  return data;
}

TEST(FillNormal, HasTheMomentsOfAStandardNormal) {
  const auto x = normals(1000, 4, 128, 7, 3);
  double sums[5] = {};
  double neighbours = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double power = 1;
    for (double& sum : sums) {
      sum += power;
      power *= x[i];
    }
    if (i > 0) neighbours += double{x[i]} * x[i - 1];
  }
  const double n = sums[0];
  // Five standard errors each, for a fixed seed.
  EXPECT_NEAR(sums[1] / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(sums[2] / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(sums[3] / n, 0, 5 * std::sqrt(15 / n));
  EXPECT_NEAR(sums[4] / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
}

TEST(FillNormal, AnElementDependsOnItsPlaceInTheStreamAlone) {
  const auto whole = normals(300, 3, 40, 11, 5);
  // Other shapes, whose rows do not start at multiples of four.
  EXPECT_EQ(normals(300 * 3 * 40, 1, 1, 11, 5), whole);
  EXPECT_EQ(normals(300 * 8, 3, 5, 11, 5), whole);
  // Any number of threads.
  set_thread_count(1);
  EXPECT_EQ(normals(300, 3, 40, 11, 5), whole);
  set_thread_count(3);
  EXPECT_EQ(normals(300, 3, 40, 11, 5), whole);
  set_thread_count(available_cpus());
  // A prefix of a longer tensor equals the shorter one.
  auto longer = normals(400, 3, 40, 11, 5);
  longer.resize(whole.size());
  EXPECT_EQ(longer, whole);
}

TEST(FillNormal, SeedsAndStreamsDiffer) {
  const auto x = normals(10, 2, 8, 1, 1);
  EXPECT_NE(x, normals(10, 2, 8, 2, 1));
  EXPECT_NE(x, normals(10, 2, 8, 1, 2));
  EXPECT_NE(x, normals(10, 2, 8, uint64_t{1} << 32, 1));
  EXPECT_NE(x, normals(10, 2, 8, 1, uint64_t{1} << 32));
  EXPECT_NE(normals(10, 2, 8, 1, 2), normals(10, 2, 8, 2, 1));
}

TEST(FillNormal, StridesLeaveTheGapsAlone) {
  const auto dense = normals(6, 2, 8, 1, 1);
  std::vector<float> data(6 * 40, -99.f);
  TensorView view = TensorView::contiguous(data.data(), DType::kF32, 6, 2, 8);
  view.token_stride = 40;
  view.head_stride = 12;
  fill_normal(view, 1, 1);
  int64_t gaps = 0;
  for (float x : data) gaps += x == -99.f;
  EXPECT_EQ(gaps, 6 * 40 - 6 * 2 * 8);
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t d = 0; d < 8; ++d) EXPECT_EQ(view.row<float>(t, h)[d], dense[(t * 2 + h) * 8 + d]);
    }
  }
}

TEST(FillNormal, OtherTypesAreTheSameNumbersRounded) {
  const auto x = normals(5, 2, 16, 9, 0);
  std::vector<bf16> b(x.size());
  std::vector<f16> h(x.size());
  std::vector<double> f(x.size());
  fill_normal(TensorView::contiguous(b.data(), DType::kBF16, 5, 2, 16), 9, 0);
  fill_normal(TensorView::contiguous(h.data(), DType::kF16, 5, 2, 16), 9, 0);
  fill_normal(TensorView::contiguous(f.data(), DType::kF64, 5, 2, 16), 9, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(b[i].bits, to_bf16(x[i]).bits);
    EXPECT_EQ(h[i].bits, to_f16(x[i]).bits);
    EXPECT_EQ(f[i], x[i]);
  }
}

TEST(RandomBits, DifferEachTime) {
  std::set<uint64_t> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(random_bits());
  EXPECT_EQ(drawn.size(), 100u);
}

}  // namespace
}  // namespace longspan
