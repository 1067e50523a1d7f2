// The stopwatch of a plan that runs in another process and times itself there.
#pragma once

#include <algorithm>
#include <cmath>

#include "attention/kernel.h"
#include "base/error.h"
#include "bench/measure/testbed.h"

namespace longspan::bench {

class SelfTimedStopwatch : public Stopwatch {
 public:
  SelfTimedStopwatch(SelfTimed& plan, Direction direction, bool cold_cache, Testbed& testbed)
      : plan_(plan), direction_(direction), cold_cache_(cold_cache), testbed_(testbed) {}

  Sample time(const Work& work) override { return row(work, 1).front(); }

  // Ignores the work argument: the plan runs on the same tensors as last time.
  std::vector<Sample> row(const Work&, int64_t count) override {
    bool throttled = false;
    std::vector<Sample> samples;
    for (const double time_s :
         plan_.times_s(direction_, cold_cache_, count, [&] { throttled = testbed_.sample_device_state(); })) {
      samples.push_back({time_s, false});
    }
    LONGSPAN_CHECK(!samples.empty(), "a self-timed plan took no sample");
    for (Sample& sample : samples) sample.throttled = throttled;
    return samples;
  }

  // An upper bound: the other process may take fewer samples.
  int64_t row_length(double time_s) const override { return testbed_.row_length(time_s); }

 private:
  SelfTimed& plan_;
  Direction direction_;
  bool cold_cache_;
  Testbed& testbed_;
};

}  // namespace longspan::bench
