// Medians and their intervals, against published tables and by simulation.
#include "bench/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace longspan::bench {
namespace {

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{5, 1, 3}), 3);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
}

// The tables of order-statistics intervals, e.g. Conover, "Practical nonparametric statistics", table A3.
TEST(MedianInterval, RanksAgreeWithPublishedTables) {
  EXPECT_EQ(median_interval_rank(5, 0.95), 0);
  EXPECT_EQ(median_interval_rank(6, 0.95), 1);
  EXPECT_EQ(median_interval_rank(8, 0.95), 1);
  EXPECT_EQ(median_interval_rank(9, 0.95), 2);
  EXPECT_EQ(median_interval_rank(10, 0.95), 2);
  EXPECT_EQ(median_interval_rank(12, 0.95), 3);
  EXPECT_EQ(median_interval_rank(20, 0.95), 6);
  EXPECT_EQ(median_interval_rank(25, 0.95), 8);
  EXPECT_EQ(median_interval_rank(10, 0.99), 1);
}

// By definition: the tail below the rank is at most 2.5 %, and that of the next rank is not. Counted exactly.
TEST(MedianInterval, RankIsTheLargestAllowed) {
  for (int n = 1; n <= 60; ++n) {
    std::vector<double> choose(static_cast<size_t>(n) + 1, 1);
    for (int k = 1; k <= n; ++k) choose[k] = choose[k - 1] * (n - k + 1) / k;
    const auto below = [&](int64_t rank) {  // P(Binomial(n, 1/2) < rank)
      double sum = 0;
      for (int64_t k = 0; k < rank; ++k) sum += choose[k];
      return std::ldexp(sum, -n);
    };
    const int64_t rank = median_interval_rank(n, 0.95);
    EXPECT_LE(below(rank), 0.025) << n;
    if (2 * (rank + 1) <= n) {
      EXPECT_GT(below(rank + 1), 0.025) << n;
    }
  }
}

TEST(MedianInterval, IsForAnyNumberOfSamples) {
  for (int64_t n : {100, 1000, 5000, 100000}) {
    const double n_real = static_cast<double>(n);
    // The normal approximation of the binomial, good to about one rank.
    EXPECT_NEAR(static_cast<double>(median_interval_rank(n, 0.95)), n_real / 2 - 1.96 * std::sqrt(n_real) / 2,
                1.5)
        << n;
  }
}

TEST(MedianInterval, TakesTheOrderStatistics) {
  std::vector<double> sorted{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(median_interval_of_sorted(sorted, 0.95), (Interval{2, 9}));
  EXPECT_EQ(median_interval_of_sorted(std::span(sorted).first(6), 0.95), (Interval{1, 6}));
  EXPECT_EQ(median_interval_of_sorted(std::span(sorted).first(5), 0.95), std::nullopt);
}

// The interval contains the true median in at least 95 of 100 samples, for any distribution. The seed is
// fixed.
TEST(MedianInterval, ContainsTheMedianWithItsConfidence) {
  std::mt19937_64 generator(1);
  std::lognormal_distribution<double> skewed(0, 1);  // its median is 1
  for (int n : {6, 15, 40}) {
    int held = 0;
    constexpr int kTrials = 4000;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> samples(static_cast<size_t>(n));
      for (double& x : samples) x = skewed(generator);
      std::sort(samples.begin(), samples.end());
      const auto interval = median_interval_of_sorted(samples, 0.95);
      held += interval->lo <= 1 && 1 <= interval->hi;
    }
    EXPECT_GT(held, 0.94 * kTrials) << n;
  }
}

TEST(MeanOfMedians, AddsHalfWidthsInQuadrature) {
  const std::vector<Estimate> medians{{10, Interval{7, 13}}, {20, Interval{16, 24}}};
  const Estimate mean = mean_of(medians);
  EXPECT_DOUBLE_EQ(mean.value, 15);
  EXPECT_DOUBLE_EQ(mean.interval->lo, 15 - 2.5);
  EXPECT_DOUBLE_EQ(mean.interval->hi, 15 + 2.5);
}

TEST(MeanOfMedians, HasNoIntervalIfAMedianHasNone) {
  const std::vector<Estimate> medians{{10, Interval{7, 13}}, {20, std::nullopt}};
  EXPECT_EQ(mean_of(medians).interval, std::nullopt);
}

TEST(MeanOfMedians, OfOneIsThatOne) {
  const Estimate mean = mean_of(std::vector<Estimate>{{10, Interval{7, 14}}});
  EXPECT_EQ(mean.value, 10);
  EXPECT_EQ(mean.interval, (Interval{7, 14}));
}

}  // namespace
}  // namespace longspan::bench
