// When a persistent kernel's CTAs are done. They take work items in order, each as soon as it is free. Host
// code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

namespace longspan::plan {

class Makespan {
 public:
  // `workers` CTAs that have already taken `items` items of about `time` each, as evenly as they can. At
  // least one worker.
  explicit Makespan(int64_t workers, double items = 0, double time = 0);

  // The worker that is free first takes an item of `time`, `count` times.
  void take(double time, int64_t count = 1);

  double end() const { return end_; }                // of the last item
  double begun() const { return free_at_.front(); }  // when the next item begins

 private:
  std::vector<double> free_at_;  // of each worker, a heap with the smallest first
  double end_ = 0;
};

}  // namespace longspan::plan
