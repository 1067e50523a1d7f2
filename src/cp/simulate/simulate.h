// Runs the programs of all ranks on a cluster, event by event, and says what each rank did when.
#pragma once

#include <cstdint>
#include <vector>

#include "cp/simulate/program.h"
#include "longspan/parallel.h"

namespace longspan::simulate {

// A stretch of a rank's time.
struct Segment {
  StepKind kind = StepKind::kMerge;
  double begin_s = 0, end_s = 0;
  int32_t flow = -1;  // that ended a wait; -1: none, or not a wait
};

struct FlowTimes {
  double ready_s = 0;  // when the later of its two ends was ready
  double begin_s = 0, end_s = 0;
  bool source_was_last = false;  // to be ready
};

struct RankTimes {
  double end_s = 0;
  double compute_s = 0, exposed_s = 0, reorder_s = 0, merge_s = 0;
  int32_t waits_most_for = -1;  // the rank whose data it waits for the longest; -1: none
  double waits_most_s = 0;
};

struct Timeline {
  double time_s = 0;  // of the slowest rank
  std::vector<RankTimes> ranks;
  std::vector<std::vector<Segment>> segments;  // by rank, in order
  std::vector<std::vector<double>> rounds_s;   // by rank: when each of its rounds begins
  std::vector<FlowTimes> flows;                // as in Program::flows
};

Timeline run(const Program& program, const Cluster& cluster, const Topology& topology);

// The path of dependences that ends with the slowest rank: what the pass's time consists of.
struct PathStretch {
  StepKind kind = StepKind::kMerge;  // kArrive: a transfer, from rank `from` to `rank`
  int32_t rank = 0, from = -1;
  double begin_s = 0, end_s = 0;
};
std::vector<PathStretch> critical_path(const Program& program, const Timeline& timeline);

}  // namespace longspan::simulate
