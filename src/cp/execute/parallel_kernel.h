// Wraps a strategy and a kernel as a Kernel. It takes whole tensors, distributes them over ranks (threads of
// this process, or processes including this one) and gathers the results. All code that checks and measures
// kernels therefore works for strategies.
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

// Makes the endpoints of a group, one per device, with a time limit for each wait.
using MakeCommunicators = std::function<std::vector<std::unique_ptr<Communicator>>(
    std::span<const Device> devices, std::chrono::milliseconds limit)>;

struct ParallelOptions {
  const Strategy* strategy = nullptr;
  Topology topology;
  StrategyOptions options;
  std::vector<Device> devices;  // rank r runs on devices[r % devices.size()]
  MakeCommunicators communicators;
  std::chrono::milliseconds limit{60000};
  // For ranks that are processes: this process's endpoint, which outlives the kernel; the three members above
  // are then unused. All processes make the same calls in the same order, and each has the whole tensors.
  Communicator* process = nullptr;
};

// The timing of one rank in one pass.
struct RankPass {
  double time_s = 0;  // from the common start of all ranks to this rank's end
  PassTimes times;
};

// The plan of a strategy wrapped as a kernel.
class ParallelPlan : public Plan {
 public:
  virtual const Schedule& schedule() const = 0;

  // Repeats a pass on the ranks' tensors of the last forward() or backward(), with a common start. A backward
  // pass is preceded by an untimed forward pass. cold_cache: flushes each GPU's L2 first; the caller must
  // flush CPU caches.
  virtual std::vector<RankPass> run(Direction direction, bool cold_cache) = 0;

  // Gathers one value per rank. Ranks that are processes must base common decisions on such values.
  virtual std::vector<double> of_all(double mine) { return {mine}; }

  // The tensors of the ranks in this process.
  struct Memory {
    int rank;
    void* data;
    size_t bytes;
  };
  virtual std::vector<Memory> memory() const = 0;
};

// Wraps `kernel`, which must outlive the result. On the CPU each rank computes with one thread.
std::unique_ptr<Kernel> parallel_kernel(const Kernel& kernel, ParallelOptions options);

}  // namespace longspan
