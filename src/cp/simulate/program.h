// What each rank does in a pass, step by step, as the executor does it (cp/execute/executor.h), and the
// exchanges between ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cp/schedule/schedule.h"
#include "cp/simulate/cluster.h"

namespace longspan::simulate {

enum class StepKind : uint8_t {
  kAttend,   // `seconds` of the kernel at the speed of its model, and `memory_s` of accumulator traffic
  kReorder,  // `seconds` of packing
  kMerge,    // `seconds` of merging and converting
  kOwn,      // `seconds` of copying own rows to where others arrive, once the kernel has ended
  kPost,     // the rank's part of exchange `exchange`
  kArrive,   // waits for what the exchange brings
  kFinish,   // waits for what the exchange brings and takes
};

struct Step {
  StepKind kind = StepKind::kMerge;
  int32_t exchange = -1;
  double seconds = 0, memory_s = 0;
};

// All that goes from one rank to another in one exchange.
struct Flow {
  int32_t exchange = 0, src = 0, dst = 0;
  double bytes = 0;
};

// Exchange 2 i is the one of round i's operands, 2 i + 1 that of its results.
inline int32_t operands_of(size_t round) {
  return static_cast<int32_t>(2 * round);
}
inline int32_t results_of(size_t round) {
  return static_cast<int32_t>(2 * round) + 1;
}

struct Program {
  std::vector<std::vector<Step>> steps;          // by rank
  std::vector<std::vector<size_t>> round_steps;  // by rank and round: the first step of the round
  std::vector<Flow> flows;                       // by exchange, src, dst
  int32_t exchanges = 0;
  std::vector<bool> beside;  // by exchange: a kernel computes meanwhile, on some rank
};

// The seconds that a kernel takes for an attend, by its model.
using AttendPrice = std::function<double(const Attend& attend)>;

Program program_of(const Schedule& schedule, Direction direction, const Problem& problem,
                   const Cluster& cluster, const AttendPrice& price);

}  // namespace longspan::simulate
