// Which context-parallel degree a workload wants: one for all micro-batches, one for each step, or one for
// each micro-batch. Everything is simulated.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"
#include "bench/spec/workload_file.h"

namespace longspan::bench {

// A way to divide the ranks among micro-batches, over the whole workload.
struct Policy {
  int degree = 0;           // of all micro-batches; 0: of each its own
  Parallelism parallelism;  // the strategy, if there is one for all; empty on single GPUs
  bool fits = true;         // in the workload's memory; if not, there are no times
  double memory_bytes = 0;  // of the GPU that holds the most
  // By step: all layers, with what is outside attention. `planned` adds planning each micro-batch once, on
  // one CPU of this machine, before it begins.
  std::vector<double> step_s, planned_step_s;
  double exposed_share = 0;               // of the ranks' time in attention, waiting for data
  double between_bytes = 0;               // sent to other nodes, by all GPUs in all steps
  double idle_gpu_hours = 0;              // in all steps, waiting included
  double regret = 0, planned_regret = 0;  // over the oracle's time, less 1
  std::map<int, int64_t> degrees;         // micro-batches by degree
};

struct WorkloadAdvice {
  // One degree and strategy for all: of each degree, those that fit, the fastest first; then the others, the
  // smallest first.
  std::vector<Policy> fixed;
  Policy each_step;         // the fastest of these for each step
  Policy each_micro_batch;  // its own degree and strategy; without planning it is the oracle
  double pricing_s = 0;     // what this machine took to price all choices, for all steps
};

// `base` has the kernel, dtype, ranks, nodes and transport; the ranks share the micro-batches of all
// replicas. Throws an input error if a micro-batch fits no group's memory.
WorkloadAdvice advise_workload(const Workload& workload, const Case& base, const Machine& machine,
                               const std::function<void(const std::string&)>& progress = {});

}  // namespace longspan::bench
