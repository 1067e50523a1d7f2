// Measuring a case that is spread over ranks: the kernel that spreads it, its stopwatch, and what it records
// beyond a single device's case.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/parallelism.h"
#include "bench/results.h"
#include "bench/stopwatch.h"
#include "bench/testbed.h"
#include "cp/parallel_kernel.h"

namespace longspan::bench {

// `kernel` over the ranks of `p`, on devices of its kind, of which `devices` are those that there are. Throws
// an input error where the transport cannot carry them.
std::unique_ptr<Kernel> spread(const Kernel& kernel, const Parallelism& p,
                               const std::vector<Device>& devices);

// Runs a pass on all ranks at once; a sample is the slowest rank's time. What work it is given does not
// matter: the ranks' tensors are there since the plan ran last.
class ParallelStopwatch : public Stopwatch {
 public:
  ParallelStopwatch(ParallelPlan& plan, Direction direction, bool cold_cache, Testbed& testbed)
      : plan_(plan), direction_(direction), cold_cache_(cold_cache), testbed_(testbed) {}

  Sample time(const Work& work) override;
  std::vector<Sample> row(const Work& work, int64_t count) override;
  int64_t row_length(double time_s) const override;

  // Every sample's ranks, warm-up runs included.
  const std::vector<std::vector<RankPass>>& passes() const { return passes_; }

 private:
  ParallelPlan& plan_;
  const Direction direction_;
  const bool cold_cache_;
  Testbed& testbed_;
  std::vector<std::vector<RankPass>> passes_;
};

// What one mask gave, beyond a single device's.
struct ParallelResult {
  std::string transport;
  int64_t rounds = 0;
  double imbalance = 0, spread = 0;
  // By rank.
  std::vector<double> area, sent_bytes, predicted_bytes, between_nodes_bytes, peak_copy_bytes, held_bytes;
  std::vector<double> rank_time_s, compute_s, exposed_s, reorder_s, merge_s;
  std::map<std::string, double> difference;    // from a single device's result, of its norm, by tensor
  std::map<std::string, double> single_error;  // of that result, as Accuracy::max_error
  Json plan;
};

// `samples` are the last of the stopwatch's passes that count.
void add_measured(ParallelResult& result, const std::vector<std::vector<RankPass>>& passes, size_t samples);
void add_planned(ParallelResult& result, const ParallelPlan& plan, const Problem& problem,
                 Direction direction, const Parallelism& p);

// ||a - b|| / ||b|| of two dense tensors in the memory of one device.
double relative_difference(const TensorView& a, const TensorView& b, DeviceKind kind);

// The `parallel` key of a result: means over the masks, the worst for errors, the plan of mask 0.
Json parallel_json(const std::vector<ParallelResult>& masks, const Parallelism& p);

}  // namespace longspan::bench
