// Measures a machine for the simulation: its kernel, memory and links, each figure with its origin. On the
// CPU a kernel's times are its least ones, perhaps without contention for memory or a shared core.
#pragma once

#include <functional>
#include <string>

#include "bench/case/workbench.h"
#include "bench/spec/parallelism.h"
#include "record/json.h"

namespace longspan::bench {

struct Calibration {
  std::string machine;  // its name
  const Kernel* kernel = nullptr;
  DType dtype = DType::kBF16;
  int64_t heads_q = 8, heads_kv = 2, head_dim = 128;
  Topology topology;
  Transport transport = Transport::kThreads;
  double budget_s = 1;  // for the samples of each measurement; the longest problem takes a quarter of it
  record::Json start;   // a machine file, whose kernel and memory are kept; null: all is measured
  std::function<void(const std::string&)> progress;
};

// The machine file. With several processes all must call it; only rank 0 gets a file, the others null. Throws
// an input error before it measures if there are no two ranks, or the transport does not suit them.
record::Json calibrate(const Workbench& workbench, const Calibration& calibration);

// A figure of a machine file.
record::Json figure(double value, std::string_view origin, const std::string& source, double residual = -1);

// Links of `machine` from the output of nccl-tests: within a node, or between nodes.
void take_nccl_tests(record::Json& machine, const std::string& text, const std::string& source,
                     bool between_nodes);

}  // namespace longspan::bench
