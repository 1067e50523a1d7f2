// How one run of some work is timed: the seam between the timing rule and a device. The CPU's is in
// cpu_stopwatch.h; a GPU's times with events and flushes its L2; a test's is a script that takes no time.
#pragma once

#include <functional>

namespace longspan::bench {

using Work = std::function<void()>;

// Monotonic time, which budgets are counted in.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now_s() = 0;
};

struct Sample {
  double time_s = 0;
  bool throttled = false;  // the device was slowed by heat or power meanwhile: to be taken again
};

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;

  // Makes the cache cold if it was made to do so, runs the work once, waits for its end, and says how long
  // the work alone took.
  virtual Sample time(const Work& work) = 0;
};

}  // namespace longspan::bench
