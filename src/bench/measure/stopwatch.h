// How runs are timed: the interface between the timing rule and a device. cpu_testbed.cpp implements it for
// the CPU. The GPU's uses events, flushes the L2 and keeps the device loaded. A test's returns scripted
// times.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace longspan::bench {

using Work = std::function<void()>;

// Monotonic time, for budgets.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now_s() = 0;
};

struct Sample {
  double time_s = 0;
  bool throttled = false;  // heat or power slowed the device: the sample is retaken
};

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  // Evicts caches if the stopwatch was made with cold_cache, runs the work once, waits for its end, and
  // returns the time of the work alone.
  virtual Sample time(const Work& work) = 0;

  // A row of samples: at least one, at most `count`, each with its own cold cache. If the device allows it,
  // they run without a rest between them.
  virtual std::vector<Sample> row(const Work& work, int64_t count) {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < count; ++i) samples.push_back(time(work));
    return samples;
  }

  // The number of samples of this length in a row: more than one on a device that slows down under load.
  virtual int64_t row_length(double /*time_s*/) const { return 1; }
};

}  // namespace longspan::bench
