// The timing rule: when a measurement has enough samples. docs/reference/metrics.md derives it.
#pragma once

#include <cstdint>

namespace longspan::record {

struct TimingRule {
  double warmup_s = 0.2;     // duration of the runs before the first sample, at least one
  int64_t min_samples = 10;  // before the interval counts
  int64_t max_samples = 1000;
  double min_time_s = 0.5;   // of sampling: by then a GPU has the clock that its power limit allows
  double budget_s = 3;       // for the samples of each mask; the first sample is always taken
  double half_width = 0.02;  // target: half the interval's width over the median
  double confidence = 0.95;  // of the interval of the median; suites cannot change it
  bool cold_cache = true;    // each sample begins with no tensor in the last-level cache
  double timeout_s = 300;    // for a whole case, including verification
  friend bool operator==(const TimingRule&, const TimingRule&) = default;
};

}  // namespace longspan::record
