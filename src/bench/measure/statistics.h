// Order statistics: the median of samples, and a distribution-free interval for the median.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "record/record.h"

namespace longspan::bench {

using record::Interval;

double median(std::span<const double> samples);  // at least one sample
double median_of_sorted(std::span<const double> sorted);

// The interval between two order statistics that contains the median of the distribution with at least this
// confidence: sorted[rank - 1] to sorted[n - rank]. rank is the largest with P(Binomial(n, 1/2) < rank) <=
// (1 - confidence) / 2, or 0 if n is too small (n < 6 at 95 %).
int64_t median_interval_rank(int64_t n, double confidence);
std::optional<Interval> median_interval_of_sorted(std::span<const double> sorted, double confidence);

// The mean of several medians, and its interval: half-widths of independent medians add in quadrature. There
// is no interval if any median has none.
struct Estimate {
  double value = 0;
  std::optional<Interval> interval;
};
Estimate mean_of(std::span<const Estimate> medians);

}  // namespace longspan::bench
