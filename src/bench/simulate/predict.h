// Predicts a case on a machine: the runner's record of it, without running anything.
#pragma once

#include <functional>
#include <string>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"
#include "cp/simulate/simulate.h"
#include "record/record.h"

namespace longspan::bench {

// The figures of the machine for a case. Throws an input error if it does not describe the case's kernel,
// tensors, transport or nodes, or if the case needs more host memory than there is.
simulate::Cluster cluster_of(const Case& c, const Machine& machine);

// A mask of a case and its schedule: both passes are simulated from it, on any machine.
struct PlannedMask {
  Problem problem;
  Schedule schedule;
};
// Throws an input error if the strategy does not support the problem.
PlannedMask plan_mask(const Case& c, HeadMasks masks);
Problem problem_of(const Case& c, HeadMasks masks);

simulate::Program program_of(const PlannedMask& mask, Direction direction, const simulate::Cluster& cluster);

// What each rank's buffers hold; empty above 64 ranks, where this would take long.
std::vector<double> held_by_rank(const PlannedMask& mask, Direction direction, bool takes_rows);

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
