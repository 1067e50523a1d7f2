// The cost of a schedule: bytes, load and buffers of each rank and round, from the schedule alone.
#pragma once

#include <cstdint>
#include <vector>

#include "cp/schedule/schedule.h"

namespace longspan {

// One round: bytes sent and pairs attended by each rank.
struct RoundCost {
  std::vector<int64_t> sent_within;   // [ranks], bytes sent to ranks of the same node
  std::vector<int64_t> sent_between;  // [ranks], bytes sent to other nodes
  std::vector<int64_t> area;          // [ranks], visible pairs attended, summed over query heads
};

struct PassCost {
  std::vector<RoundCost> rounds;
  // [ranks], sums over the rounds.
  std::vector<int64_t> sent_within, sent_between, area;
  // [ranks], peak elements of held copies of other ranks' operands, including kept ones.
  std::vector<int64_t> peak_elements;
  double imbalance = 0;  // largest area over mean area; 1 is perfect

  int64_t sent(size_t rank) const { return sent_within[rank] + sent_between[rank]; }
  int64_t most_sent() const;  // by one rank
  int64_t all_sent() const;   // by all ranks together
};

struct Cost {
  PassCost forward, backward;
  const PassCost& of(Direction direction) const {
    return direction == Direction::kForward ? forward : backward;
  }
};
Cost cost_of(const Schedule& schedule, const Problem& problem, const Topology& topology);

// The peak bytes of a rank's buffers, without its own tensors, according to the schedule: copies of other
// ranks' operands with the rank's own rows beside them; packed outgoing data; o and lse of rows attended for
// others, kept for the backward pass; and f32 results. The f32 results are, for rows, the accumulator and one
// round's part; for keys, these two plus what is sent to the next rank and received from the previous one.
int64_t buffer_bytes(const Schedule& schedule, const Problem& problem, const Cost& cost, int rank,
                     Direction direction);

}  // namespace longspan
