// The outcome of a case, from what each of its masks gave.
#pragma once

#include <vector>

#include "bench/measure/measure.h"
#include "bench/run/workbench.h"
#include "bench/spec/case.h"

namespace longspan::bench {

// What one mask gave.
struct MaskResult {
  DrawnMask mask;
  int64_t area = 0;  // summed over query heads
  double flops = 0;
  double plan_s = 0;
  size_t plan_bytes = 0, workspace_bytes = 0, peak_bytes = 0;
  PlanNotes notes;
  Accuracy accuracy;
  Measurement measurement;
  record::ParallelRecord parallel;  // of a case that is spread over ranks
};

// Takes the device's state from the testbed.
record::Outcome outcome_of(const std::vector<MaskResult>& masks, const Case& c, Testbed& testbed);

}  // namespace longspan::bench
