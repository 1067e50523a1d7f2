// The cases that measure a workload: both passes of each micro-batch, for each contender.
#pragma once

#include "bench/spec/suite.h"
#include "bench/spec/workload_file.h"

namespace longspan::bench {

// A kernel, and the strategy that spreads it.
struct WorkloadSeries {
  // Ids of cases by step and data-parallel replica. A micro-batch that occurs again is measured once and
  // named again.
  std::vector<std::vector<std::vector<std::string>>> steps;
};

struct WorkloadCases {
  std::vector<Case> cases;  // each once
  std::vector<WorkloadSeries> series;
};

// `given`: the axes of the command line; a strategy without ranks gets the workload's degree. The other
// arguments are those of expand(). Throws an input error if `given` has an axis that the workload fixes.
WorkloadCases cases_of(const Workload& workload, const Group& given,
                       const std::vector<std::string>& all_kernels, const std::vector<std::string>& offered,
                       std::span<const KernelRow> rows = {});

}  // namespace longspan::bench
