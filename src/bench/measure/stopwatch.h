// How runs are timed: the interface between the timing rule and a device. The CPU's is in cpu_testbed.cpp. A
// GPU's uses events, empties the L2 and keeps the device loaded. A test's returns scripted times.
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
  bool throttled = false;  // heat or power slowed the device meanwhile: it is taken again
};

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  // Makes the cache cold if it was made to do so, runs the work once, waits for its end, and says how long
  // the work alone took.
  virtual Sample time(const Work& work) = 0;

  // A row of samples, at most `count` and at least one, without a rest between them where the device allows
  // that: each with its own cold cache.
  virtual std::vector<Sample> row(const Work& work, int64_t count) {
    std::vector<Sample> samples;
    for (int64_t i = 0; i < count; ++i) samples.push_back(time(work));
    return samples;
  }

  // How many samples of such a length make a row: more than one on a device that slows down under load.
  virtual int64_t row_length(double /*time_s*/) const { return 1; }
};

}  // namespace longspan::bench
