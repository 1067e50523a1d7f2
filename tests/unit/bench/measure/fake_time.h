// A scripted clock and stopwatch.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/measure/stopwatch.h"

namespace longspan::bench {

class FakeClock : public Clock {
 public:
  double now_s() override { return now_; }
  void advance(double seconds) { now_ += seconds; }

 private:
  double now_ = 1000;
};

// Each run takes the next time of the script, and then repeats the last one. The clock advances by that time
// and by `overhead_s`, which stands for evicting the cache.
class FakeStopwatch : public Stopwatch {
 public:
  FakeStopwatch(FakeClock& clock, std::vector<Sample> script, double overhead_s = 0)
      : clock_(clock), script_(std::move(script)), overhead_s_(overhead_s) {}

  Sample time(const Work& work) override {
    work();
    const Sample sample = script_[runs < script_.size() ? runs : script_.size() - 1];
    ++runs;
    clock_.advance(sample.time_s + overhead_s_);
    return sample;
  }

  std::vector<Sample> row(const Work& work, int64_t count) override {
    rows.push_back(count);
    return Stopwatch::row(work, count);
  }
  int64_t row_length(double time_s) const override {
    return row_s == 0 ? 1 : std::max<int64_t>(1, static_cast<int64_t>(row_s / time_s));
  }

  size_t runs = 0;
  double row_s = 0;           // duration of a row; 0: one sample at a time
  std::vector<int64_t> rows;  // requested lengths

 private:
  FakeClock& clock_;
  std::vector<Sample> script_;
  double overhead_s_;
};

}  // namespace longspan::bench
