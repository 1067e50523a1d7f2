// Measures a case that is spread over ranks: the kernel that spreads it, its stopwatch, and its part of the
// record.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/measure/stopwatch.h"
#include "bench/measure/testbed.h"
#include "bench/spec/parallelism.h"
#include "comm/rendezvous.h"
#include "cp/execute/parallel_kernel.h"
#include "record/record.h"

namespace longspan::bench {

// A kernel over ranks and, if the ranks are processes, this process's communicator.
struct Spread {
  std::unique_ptr<Communicator> process;
  std::unique_ptr<Kernel> kernel;
};

// Throws an input error if the transport does not connect devices of the kernel's kind.
void check_transport(const Kernel& kernel, Transport transport);

// Throws an input error if NCCL lacks GPUs for the ranks of one process.
void check_gpu_for_each_rank(size_t gpus, int ranks);

// Spreads `kernel` over the ranks of `p`: threads on the `devices` of its kind, or processes, of which this
// one has `device`. `alarm`, if given, reports ranks that have died. Throws an input error if the transport
// does not suit the ranks.
Spread spread(const Kernel& kernel, const Parallelism& p, const std::vector<Device>& devices,
              const Device& device, Alarm* alarm = nullptr);

// Rank 0's time on all ranks, so that all measure for the same duration.
class SharedClock : public Clock {
 public:
  SharedClock(Clock& clock, ParallelPlan& plan) : clock_(clock), plan_(plan) {}
  double now_s() override { return plan_.of_all(clock_.now_s()).front(); }

 private:
  Clock& clock_;
  ParallelPlan& plan_;
};

// Runs a pass on all ranks at once; a sample is the slowest rank's time. The work argument is ignored: the
// ranks keep the tensors of the plan's last run.
class ParallelStopwatch : public Stopwatch {
 public:
  ParallelStopwatch(ParallelPlan& plan, Direction direction, bool cold_cache, Testbed& testbed)
      : plan_(plan), direction_(direction), cold_cache_(cold_cache), testbed_(testbed) {}

  Sample time(const Work& work) override;
  std::vector<Sample> row(const Work& work, int64_t count) override;
  int64_t row_length(double time_s) const override;

  // One entry per sample, warm-up runs included; each holds one pass per rank.
  const std::vector<std::vector<RankPass>>& passes() const { return passes_; }

 private:
  ParallelPlan& plan_;
  const Direction direction_;
  const bool cold_cache_;
  Testbed& testbed_;
  std::vector<std::vector<RankPass>> passes_;
};

// Only the last `samples` entries of `passes` count; earlier ones are warm-up.
void add_measured(record::ParallelRecord& result, const std::vector<std::vector<RankPass>>& passes,
                  size_t samples);
void add_planned(record::ParallelRecord& result, const ParallelPlan& plan, const Problem& problem,
                 Direction direction, const Parallelism& p);

// ||a - b|| / ||b|| of two dense tensors in the memory of one device.
double relative_difference(const TensorView& a, const TensorView& b, DeviceKind kind);

// Means over the masks, the worst errors, and the plan of mask 0.
record::ParallelRecord mean_of(const std::vector<record::ParallelRecord>& masks);

}  // namespace longspan::bench
