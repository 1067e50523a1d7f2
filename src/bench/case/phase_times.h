// The duration of each phase of a case.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "bench/measure/cpu_testbed.h"
#include "record/record.h"

namespace longspan::bench {

// Measured by the runner, so that starting and ending the process are included.
class PhaseTimes {
 public:
  // The masks of a case share phases: "timing, mask 2 of 3" counts as "timing".
  void enter(const std::string& phase) {
    close();
    name_ = phase.substr(0, phase.find(','));
  }

  // In seconds, to a tenth of a millisecond.
  record::Named<double> times() {
    close();
    record::Named<double> rounded = times_;
    for (auto& [name, time_s] : rounded) time_s = std::round(time_s * 1e4) / 1e4;
    return rounded;
  }

 private:
  void close() {
    const double now_s = steady_clock().now_s();
    auto found =
        std::find_if(times_.begin(), times_.end(), [&](const auto& entry) { return entry.first == name_; });
    if (found == times_.end()) found = times_.insert(found, {name_, 0});
    found->second += now_s - begin_s_;
    begin_s_ = now_s;
  }

  record::Named<double> times_;  // in the order of their first start
  std::string name_ = "starting";
  double begin_s_ = steady_clock().now_s();
};

}  // namespace longspan::bench
