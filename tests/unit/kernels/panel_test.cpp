#include "kernels/cpu/panel.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

namespace longspan {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Runs every test with each vector instruction set that this machine supports.
class Panel : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

std::vector<int64_t> targets() {
  std::vector<int64_t> each;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1)
    each.push_back(left & -left);
  return each;
}

TEST_P(Panel, RunsOnTheTargetAskedFor) {
  EXPECT_STREQ(vector_target(), hwy::TargetName(GetParam()));
}

TEST_P(Panel, Exp2IsRightToTwoUlp) {
  std::vector<float> x;
  for (float at = -126; at <= 0; at += 0.000123f) x.push_back(at);
  for (float at = 0; at <= 8; at += 0.01f) x.push_back(at);
  while (x.size() % 16 != 0) x.push_back(0);
  std::vector<float> y(x.size());
  exp2_elements(x.data(), x.size(), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double truth = std::exp2(double{x[i]});
    const float ulp = std::nextafter(static_cast<float>(truth), kInfinity) - static_cast<float>(truth);
    worst = std::max(worst, std::abs(y[i] - truth) / ulp);
  }
  EXPECT_LT(worst, 2.0);
}

TEST_P(Panel, Exp2AtItsCorners) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {0,   -1, -126, -126.5f, -1000, -kInfinity, -std::numeric_limits<float>::max(),
                                nan, 1,  8,    -0.0f,   0,     0,          0,
                                0,   0};
  std::vector<float> y(16);
  exp2_elements(x.data(), 16, y.data());
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 0.5f);
  EXPECT_EQ(y[2], std::ldexp(1.0f, -126));
  for (int i : {3, 4, 5, 6}) EXPECT_EQ(y[i], 0.0f) << x[i];
  EXPECT_TRUE(std::isnan(y[7]));
  EXPECT_EQ(y[8], 2.0f);
  EXPECT_EQ(y[9], 256.0f);
}

TEST_P(Panel, TransposesEveryElement) {
  constexpr int32_t kRows = 20, kColumns = 12;
  std::vector<float> in(kRows * (kColumns + 3)), out(kColumns * (kRows + 5), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  transpose(in.data(), kColumns + 3, kRows, kColumns, out.data(), kRows + 5);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) EXPECT_EQ(out[c * (kRows + 5) + r], in[r * (kColumns + 3) + c]);
  }
}

TEST_P(Panel, DotSumsAllElements) {
  for (int count : {1, 8, 15, 16, 40, 256}) {
    std::vector<float> a(count), b(count);
    double truth = 0;
    for (int i = 0; i < count; ++i) {
      a[i] = 1.0f + i;
      b[i] = 2.0f - i;
      truth += double{a[i]} * b[i];
    }
    EXPECT_NEAR(dot(a.data(), b.data(), count), truth, 1e-6 * std::abs(truth));
  }
}

TEST_P(Panel, StoresWhatItLoads) {
  const std::vector<float> values = {0, 1, -2.5f, 0.125f, 384, -0.0f, 3, 1.5f};
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<float> stored(values.size()), loaded(values.size());
    store_elements(values.data(), values.size(), 2.0f, stored.data(), dtype);
    load_elements(stored.data(), dtype, values.size(), 0.5f, loaded.data());
    EXPECT_EQ(loaded, values) << name_of(dtype);
  }
}

// Two steps in which the maximum rises; one lane sees nothing, one only -inf, one some keys.
TEST_P(Panel, OnlineSoftmaxEqualsSoftmaxOfAllKeys) {
  constexpr int32_t kLanes = 16, kKeys = 8, kHeadDim = 4;
  std::vector<float> scores(2 * kKeys * kLanes);
  for (int j = 0; j < 2 * kKeys; ++j) {
    for (int r = 0; r < kLanes; ++r)
      scores[j * kLanes + r] = (r % 5) * std::sin(1.7f * j + r) + (j >= kKeys) * r;
    scores[j * kLanes + 3] = -kInfinity;
  }
  const std::vector<float> original = scores;
  std::vector<int32_t> begin(kLanes, 0), end(kLanes, 2 * kKeys);
  begin[2] = end[2] = 0;
  begin[4] = 5;
  end[4] = 10;
  const LaneMask mask{begin.data(), end.data(), 1, kLanes};
  std::vector<float> maximum(kLanes, -kInfinity), sum(kLanes, 0), out(kHeadDim * kLanes, 0);
  const SoftmaxState state{maximum.data(), sum.data(), out.data(), kHeadDim};
  for (int step = 0; step < 2; ++step) {
    float* part = scores.data() + step * kKeys * kLanes;
    softmax_forward(part, kKeys, kLanes, step * kKeys, mask, state);
    for (int d = 0; d < kHeadDim; ++d) {
      for (int j = 0; j < kKeys; ++j) {
        for (int r = 0; r < kLanes; ++r) out[d * kLanes + r] += part[j * kLanes + r] * (d + step * kKeys + j);
      }
    }
  }
  for (int r = 0; r < kLanes; ++r) {
    double truth_sum = 0, truth_out = 0;
    for (int j = begin[r]; j < end[r]; ++j) {
      truth_sum += std::exp2(double{original[j * kLanes + r]});
      truth_out += std::exp2(double{original[j * kLanes + r]}) * (1 + j);
    }
    if (truth_sum == 0) {
      EXPECT_EQ(sum[r], 0) << r;
      EXPECT_EQ(out[kLanes + r], 0) << r;
    } else {
      EXPECT_NEAR(sum[r] * std::exp2(double{maximum[r]}) / truth_sum, 1, 1e-5) << r;
      EXPECT_NEAR(out[kLanes + r] / sum[r], truth_out / truth_sum, 1e-5 * truth_out / truth_sum) << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Panel, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace longspan
