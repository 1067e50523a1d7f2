// Predicts a case on a machine: the runner's record of it, without running anything.
#pragma once

#include <functional>
#include <string>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"
#include "cp/simulate/memory.h"
#include "cp/simulate/simulate.h"
#include "record/record.h"

namespace longspan::bench {

// The figures of the machine for a case. Throws an input error if it does not describe the case's kernel,
// tensors, transport or nodes, or if the case needs more host memory than there is.
simulate::Cluster cluster_of(const Case& c, const Machine& machine);

// Links that were not measured may be this much slower or faster: the band of a prediction.
inline constexpr double kSlowerLinks = 0.75, kFasterLinks = 1.25;
// The cluster if all its links carried `factor` as much.
simulate::Cluster with_links(simulate::Cluster cluster, double factor);

// A mask of a case and its schedule: both passes are simulated from it, on any machine.
struct PlannedMask {
  Problem problem;
  Schedule schedule;
};
// Throws an input error if the strategy does not support the problem.
PlannedMask plan_mask(const Case& c, HeadMasks masks);
Problem problem_of(const Case& c, HeadMasks masks);

simulate::Program program_of(const PlannedMask& mask, Direction direction, const simulate::Cluster& cluster);

// What each rank's buffers hold.
std::vector<double> held_by_rank(const PlannedMask& mask, Direction direction, bool takes_rows);

// A context-parallel pass of one mask, simulated.
struct SimulatedPass {
  simulate::Program program;
  simulate::Timeline timeline;
  std::vector<simulate::MemoryUse> memory;  // by rank
};

struct Prediction {
  // As the runner would write it; times are predicted. interval_s is the band, if it was asked for.
  record::CaseRecord record;
  SimulatedPass pass;  // of mask 0; empty for a case on one device
};

// Band::kLinks: also predicts with faster and slower links.
enum class Band : bool { kNone, kLinks };

// `progress` is told what is being done. Throws an input error if the machine does not describe the case's
// kernel or transport, or if the strategy does not support it.
Prediction predict(const Case& c, const Machine& machine, Band band = Band::kNone,
                   const std::function<void(const std::string&)>& progress = {});

// The line of a prediction: that of a case, but of type "simulated" and with the machine's name, so that it
// is never taken for a measurement.
record::Json simulated_line(const Prediction& prediction, const Machine& machine);

// "compute", "reorder", "merge" or "wait".
std::string_view name_of(simulate::StepKind kind);

// The other rank of the transfer that ends a wait; -1: none.
int32_t peer_of(const simulate::Program& program, const simulate::Segment& segment, size_t rank);

// What a rank's buffers use over time: when each round of mask 0 begins, and the most in use until the next.
struct MemoryStep {
  double begin_s = 0;
  double bytes = 0;
};
std::vector<MemoryStep> memory_over_time(const SimulatedPass& pass, size_t rank);

}  // namespace longspan::bench
