// A strategy with a kernel inside, as a kernel: it takes whole tensors, spreads them over ranks, which are
// threads of this process, or processes of which this one is one, and gathers the results. So all that checks
// and measures a kernel does so for a strategy, too.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "cp/execute/executor.h"
#include "cp/strategies/strategy.h"

namespace longspan {

// Makes the ends of a group, one a device, with a time limit for each wait.
using MakeCommunicators = std::function<std::vector<std::unique_ptr<Communicator>>(
    std::span<const Device> devices, std::chrono::milliseconds limit)>;

struct ParallelOptions {
  const Strategy* strategy = nullptr;
  Topology topology;
  StrategyOptions options;
  std::vector<Device> devices;  // rank r runs on devices[r % devices.size()]
  MakeCommunicators communicators;
  std::chrono::milliseconds limit{60000};
  // Where ranks are processes: this one's end of their group, which outlives the kernel; the three above are
  // not used then. All processes call the same in the same order, and each has all whole tensors.
  Communicator* process = nullptr;
};

// One rank's part in one pass.
struct RankPass {
  double time_s = 0;  // from its start, when all ranks were ready, to its end
  PassTimes times;
};

// The plan of such a kernel.
class ParallelPlan : public Plan {
 public:
  virtual const Schedule& schedule() const = 0;

  // Runs a pass again on the ranks' tensors of the last forward() or backward(): all start together. A
  // backward pass is preceded by a forward pass that is not timed. cold_cache: each GPU's L2 is emptied
  // before; a CPU's caches are the caller's to empty.
  virtual std::vector<RankPass> run(Direction direction, bool cold_cache) = 0;

  // What each rank has to tell, by rank: where ranks are processes they decide alike only on what all know.
  virtual std::vector<double> of_all(double mine) { return {mine}; }

  // The ranks' tensors, of this process.
  struct Memory {
    int rank;
    void* data;
    size_t bytes;
  };
  virtual std::vector<Memory> memory() const = 0;
};

// Spreads `kernel`, which it refers to. On the CPU each rank computes with one thread.
std::unique_ptr<Kernel> parallel_kernel(const Kernel& kernel, ParallelOptions options);

}  // namespace longspan
