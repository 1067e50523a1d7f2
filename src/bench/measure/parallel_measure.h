// Measuring a case that is spread over ranks: the kernel that spreads it, its stopwatch, and what it records
// beyond a single device's case.
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

// A kernel over ranks, and where those are processes this one's end of their group.
struct Spread {
  std::unique_ptr<Communicator> process;
  std::unique_ptr<Kernel> kernel;
};

// `kernel` over the ranks of `p`: threads on devices of its kind, of which `devices` are those that there
// are; or processes, of which this one has `device`, and hears of the others' deaths from `alarm`, if that is
// given. Throws an input error where the transport cannot carry them.
Spread spread(const Kernel& kernel, const Parallelism& p, const std::vector<Device>& devices,
              const Device& device, Alarm* alarm = nullptr);

// Time as rank 0 sees it, so that all ranks measure equally long.
class SharedClock : public Clock {
 public:
  SharedClock(Clock& clock, ParallelPlan& plan) : clock_(clock), plan_(plan) {}
  double now_s() override { return plan_.of_all(clock_.now_s()).front(); }

 private:
  Clock& clock_;
  ParallelPlan& plan_;
};

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

// `samples` are the last of the stopwatch's passes that count.
void add_measured(record::ParallelRecord& result, const std::vector<std::vector<RankPass>>& passes,
                  size_t samples);
void add_planned(record::ParallelRecord& result, const ParallelPlan& plan, const Problem& problem,
                 Direction direction, const Parallelism& p);

// ||a - b|| / ||b|| of two dense tensors in the memory of one device.
double relative_difference(const TensorView& a, const TensorView& b, DeviceKind kind);

// Means over the masks, the worst of errors, the plan of mask 0.
record::ParallelRecord mean_of(const std::vector<record::ParallelRecord>& masks);

}  // namespace longspan::bench
