#include "report/bootstrap.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longspan::report {
namespace {

double beta(double a, double b, std::mt19937_64& generator) {
  const double x = std::gamma_distribution<double>(a)(generator);
  const double y = std::gamma_distribution<double>(b)(generator);
  return x + y > 0 ? x / (x + y) : 0.5;
}

double at(std::span<const double> sorted, double u) {
  const auto n = static_cast<double>(sorted.size());
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(std::floor(n * u)))];
}

}  // namespace

double median(std::span<const double> sorted) {
  LONGSPAN_CHECK(!sorted.empty(), "no value has a median");
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double bootstrap_median(std::span<const double> sorted, std::mt19937_64& generator) {
  LONGSPAN_CHECK(!sorted.empty(), "no value has a median");
  const auto n = static_cast<double>(sorted.size());
  const double m = std::ceil(n / 2);
  const double lower = beta(m, n - m + 1, generator);
  if (sorted.size() % 2 == 1) return at(sorted, lower);
  const double upper = lower + (1 - lower) * beta(1, n - m, generator);
  return (at(sorted, lower) + at(sorted, upper)) / 2;
}

}  // namespace longspan::report
