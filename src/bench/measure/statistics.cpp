// Order statistics of samples, and the interval of a median by the binomial distribution.
#include "bench/measure/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longspan::bench {

double median_of_sorted(std::span<const double> sorted) {
  LONGSPAN_CHECK(!sorted.empty(), "the median of no samples");
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double median(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return median_of_sorted(sorted);
}

int64_t median_interval_rank(int64_t n, double confidence) {
  const double tail = (1 - confidence) / 2;
  // P(Binomial(n, 1/2) = k), in logarithms: 2^-n underflows a double at n = 1075.
  const double log_half_n = -static_cast<double>(n) * std::log(2.0);
  double cumulative = 0;
  for (int64_t k = 0; 2 * k < n; ++k) {
    const double log_choose = std::lgamma(static_cast<double>(n) + 1) -
                              std::lgamma(static_cast<double>(k) + 1) -
                              std::lgamma(static_cast<double>(n - k) + 1);
    cumulative += std::exp(log_choose + log_half_n);
    // cumulative is now P(B < k + 1). Rank k + 1 is allowed while this is at most the tail.
    if (cumulative > tail) return k;
  }
  return n / 2;
}

std::optional<Interval> median_interval_of_sorted(std::span<const double> sorted, double confidence) {
  const int64_t n = static_cast<int64_t>(sorted.size());
  const int64_t rank = median_interval_rank(n, confidence);
  if (rank == 0) return std::nullopt;
  return Interval{sorted[rank - 1], sorted[n - rank]};
}

Estimate mean_of(std::span<const Estimate> medians) {
  LONGSPAN_CHECK(!medians.empty(), "the mean of no medians");
  double sum = 0, below = 0, above = 0;
  bool known = true;
  for (const Estimate& m : medians) {
    sum += m.value;
    known = known && m.interval.has_value();
    if (!m.interval) continue;
    below += (m.value - m.interval->lo) * (m.value - m.interval->lo);
    above += (m.interval->hi - m.value) * (m.interval->hi - m.value);
  }
  const double n = static_cast<double>(medians.size());
  Estimate mean{sum / n, std::nullopt};
  if (known) mean.interval = Interval{mean.value - std::sqrt(below) / n, mean.value + std::sqrt(above) / n};
  return mean;
}

}  // namespace longspan::bench
