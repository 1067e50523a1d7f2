// The timing rule: when a measurement has enough samples. docs/reference/metrics.md derives it.
#pragma once

#include <cstdint>

namespace longspan::record {

struct TimingRule {
  double warmup_s = 0.2;     // runs before the first sample, at least one
  int64_t min_samples = 10;  // before the interval is believed
  int64_t max_samples = 1000;
  double budget_s = 3;       // of samples, for each mask; the first sample is always taken
  double half_width = 0.02;  // enough: half the interval's width over the median is at most this
  double confidence = 0.95;  // of the interval of the median; not for a suite to choose
  bool cold_cache = true;    // each sample begins with no tensor in the last-level cache
  double timeout_s = 300;    // for a whole case, verification and all
  friend bool operator==(const TimingRule&, const TimingRule&) = default;
};

}  // namespace longspan::record
