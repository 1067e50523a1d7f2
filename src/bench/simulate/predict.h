// Predicts a case on a machine: the runner's record of it, without running anything.
#pragma once

#include <functional>
#include <string>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"
#include "cp/simulate/simulate.h"
#include "record/record.h"

namespace longspan::bench {

// A context-parallel pass of one mask, simulated.
struct SimulatedPass {
  simulate::Program program;
  simulate::Timeline timeline;
};

struct Prediction {
  record::CaseRecord record;  // as the runner would write it; times are predicted
  SimulatedPass pass;         // of mask 0; empty for a case on one device
};

// `progress` is told what is being done. Throws an input error if the machine does not describe the case's
// kernel or transport, or if the strategy does not support it.
Prediction predict(const Case& c, const Machine& machine,
                   const std::function<void(const std::string&)>& progress = {});

// The line of a prediction: that of a case, but of type "simulated" and with the machine's name, so that it
// is never taken for a measurement.
record::Json simulated_line(const record::CaseRecord& record, const Machine& machine);

}  // namespace longspan::bench
