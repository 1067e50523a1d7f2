// Applies the timing rule: warm up, then sample until the median is known with the required precision.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/measure/statistics.h"
#include "bench/measure/stopwatch.h"
#include "bench/spec/timing_rule.h"

namespace longspan::bench {

struct Measurement {
  std::vector<double> samples_s;            // all of them, in the order taken
  std::vector<double> throttled_samples_s;  // excluded and retaken
  double median_s = 0;
  std::optional<Interval> interval_s;  // of the median
  bool converged = false;              // the interval met the rule's bound
};

Measurement measure(const Work& work, Stopwatch& stopwatch, Clock& clock, const TimingRule& rule);

}  // namespace longspan::bench
