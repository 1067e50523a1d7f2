// The steps of a workload, summed up: for each kernel and strategy the distribution of a step's time, how
// evenly its ranks are loaded, and planning.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "record/json.h"
#include "report/results.h"

namespace longspan::report {

// By nearest rank: the smallest value that this share of the values does not exceed.
struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0;
};
Percentiles percentiles(std::vector<double> values);  // at least one

struct WorkloadSummary {
  std::string workload, hash;  // the file, and that of its text
  int64_t layers = 1;
  std::string setup, contender;    // "usp ulysses 2, 4 ranks, sm90 bf16"
  size_t steps = 0, measured = 0;  // `measured`: all of whose cases were
  std::string reason;              // why a case was not
  // Over the measured steps, all absent without one. A step's time is that of one layer's attention, both
  // passes of all micro-batches, of the slowest replica.
  std::optional<Percentiles> attention_s;
  // Planning each micro-batch once, and a layer's share of that with its attention.
  std::optional<Percentiles> planning_s, with_planning_s;
  // The largest rank's load over the mean one's, as medians over the steps; absent on one device.
  std::optional<double> tokens_imbalance, pairs_imbalance, time_imbalance;
  std::optional<double> error;  // the largest, over its tolerance
};

// Of each workload those that lack the fewest steps first, then the fastest.
std::vector<WorkloadSummary> summarise_workloads(const Results& results);

// The cases of the workloads, as pointers into the results. Tables of cases leave them out.
std::set<const CaseRecord*> cases_of_workloads(const Results& results);

std::string format_workloads(const std::vector<WorkloadSummary>& summaries, int width);  // "" if none
record::Json workloads_json(const std::vector<WorkloadSummary>& summaries);

}  // namespace longspan::report
