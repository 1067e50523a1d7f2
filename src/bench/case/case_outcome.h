// Makes the outcome of a case from the results of its masks.
#pragma once

#include <vector>

#include "bench/case/workbench.h"
#include "bench/measure/measure.h"
#include "bench/spec/case.h"

namespace longspan::bench {

// The result of one mask.
struct MaskResult {
  DrawnMask mask;
  int64_t area = 0;  // summed over query heads
  double flops = 0;
  double plan_s = 0;
  size_t plan_bytes = 0, workspace_bytes = 0, peak_bytes = 0;
  size_t total_bytes = 0;  // peak_bytes, inputs and outputs
  PlanNotes notes;
  Accuracy accuracy;
  Measurement measurement;
  record::ParallelRecord parallel;  // if the case is spread over ranks
};

// Also takes the device's state from the testbed.
record::Outcome outcome_of(const std::vector<MaskResult>& masks, const Case& c, Testbed& testbed);

}  // namespace longspan::bench
