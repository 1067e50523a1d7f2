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

uint32_t place(double u, double n) {
  return static_cast<uint32_t>(std::min(n - 1, std::floor(n * u)));
}

}  // namespace

double median(std::span<const double> sorted) {
  LONGSPAN_CHECK(!sorted.empty(), "no value has a median");
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

MiddlePlaces resampled_middle(size_t count, std::mt19937_64& generator) {
  LONGSPAN_CHECK(count > 0, "no value has a median");
  const auto n = static_cast<double>(count);
  const double m = std::ceil(n / 2);
  const double lower = beta(m, n - m + 1, generator);
  if (count % 2 == 1) return {place(lower, n), place(lower, n)};
  const double upper = lower + (1 - lower) * beta(1, n - m, generator);
  return {place(lower, n), place(upper, n)};
}

const std::vector<MiddlePlaces>& Bootstrap::places(uint64_t stream, size_t n) {
  std::vector<MiddlePlaces>& places = drawn_[{stream, n}];
  if (places.empty()) {
    std::seed_seq seeds{seed_ & UINT32_MAX, seed_ >> 32, stream, uint64_t{n}};
    std::mt19937_64 generator(seeds);
    places.reserve(replicates());
    for (int i = 0; i < replicates_; ++i) places.push_back(resampled_middle(n, generator));
  }
  return places;
}

}  // namespace longspan::report
