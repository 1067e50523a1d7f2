// Fits the figures of a machine file to measured times. Each measurement counts by its relative error.
#pragma once

#include <string>
#include <vector>

#include "attention/kernel_cost.h"

namespace longspan::bench {

struct KernelSample {
  TileWork work;
  int64_t head_dim = 128;
  double time_s = 0;
};

struct Residual {
  double mean = 0, largest = 0;  // relative errors of what was fitted
};

// Fills in the times of a pass whose tile shape is given. None is negative. Throws an input error if a sample
// took no time.
Residual fit_kernel(const std::vector<KernelSample>& samples, int64_t units, KernelPassCost& pass);

// A time that grows with bytes: latency_s + bytes / bytes_per_s.
struct Line {
  double latency_s = 0, bytes_per_s = 0;
  Residual residual;
};
struct LineSample {
  double bytes = 0, time_s = 0;
};
// Without a latency if larger ones do not take longer, and with a large residual. Throws an input error
// unless there are two sizes.
Line fit_line(const std::vector<LineSample>& samples);

// The output of nccl-tests (all_gather_perf, sendrecv_perf, ...): bytes that cross a rank's link, and the
// time, out of place. Throws an input error if it holds no such table.
std::vector<LineSample> read_nccl_tests(const std::string& text);

}  // namespace longspan::bench
