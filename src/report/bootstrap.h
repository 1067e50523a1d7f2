// Bootstrap replicates of a median, drawn without resampling.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace longspan::report {

// The two values among n sorted ones whose mean is the median of a bootstrap resample (n draws with
// replacement); the same one twice if n is odd.
struct MiddlePlaces {
  uint32_t lower = 0, upper = 0;

  double median_of(std::span<const double> sorted) const { return (sorted[lower] + sorted[upper]) / 2; }
};

// A resample is n draws x[floor(n * U)] with U uniform, so its order statistics are those of the U's, mapped
// the same way. The m-th of n uniforms is Beta(m, n - m + 1); the next one divides the interval from it to 1
// at a Beta(1, n - m) fraction. Two Beta draws therefore replace n draws and a selection. n is at least 1.
MiddlePlaces resampled_middle(size_t n, std::mt19937_64& generator);

// Replicates of resamples. They depend on the number of values alone, so thousands of cases share them.
class Bootstrap {
 public:
  Bootstrap(int replicates, uint64_t seed) : replicates_(replicates), seed_(seed) {}

  size_t replicates() const { return static_cast<size_t>(replicates_); }
  // Those of n values. Different streams are independent.
  const std::vector<MiddlePlaces>& places(uint64_t stream, size_t n);

 private:
  int replicates_;
  uint64_t seed_;
  std::map<std::pair<uint64_t, size_t>, std::vector<MiddlePlaces>> drawn_;
};

// The ordinary median; for an even count, the mean of the two middle values.
double median(std::span<const double> sorted);

}  // namespace longspan::report
