// The stopwatch of a plan that runs in another process and times itself there.
#pragma once

#include "attention/kernel.h"
#include "bench/testbed.h"

namespace longspan::bench {

class SelfTimedStopwatch : public Stopwatch {
 public:
  SelfTimedStopwatch(SelfTimed& plan, Direction direction, bool cold_cache, Testbed& testbed)
      : plan_(plan), direction_(direction), cold_cache_(cold_cache), testbed_(testbed) {}

  // The work is the plan's own: it runs on the tensors that it ran on last.
  Sample time(const Work&) override {
    Sample sample;
    sample.time_s =
        plan_.time_s(direction_, cold_cache_, [&] { sample.throttled = testbed_.sample_device_state(); });
    return sample;
  }

 private:
  SelfTimed& plan_;
  Direction direction_;
  bool cold_cache_;
  Testbed& testbed_;
};

}  // namespace longspan::bench
