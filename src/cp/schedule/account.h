// What a schedule costs, from the schedule alone: bytes, load and buffers of each rank, round by round.
#pragma once

#include <cstdint>
#include <vector>

#include "cp/schedule/schedule.h"

namespace longspan {

// One round: what each rank sends, and attends to.
struct RoundCost {
  std::vector<int64_t> sent_within;   // [ranks], bytes sent to ranks of the same node
  std::vector<int64_t> sent_between;  // [ranks], bytes sent to other nodes
  std::vector<int64_t> area;          // [ranks], visible pairs attended, summed over query heads
};

struct PassCost {
  std::vector<RoundCost> rounds;
  // Sums over the rounds, [ranks].
  std::vector<int64_t> sent_within, sent_between, area;
  // [ranks], elements of other ranks' operands that are held at once at most (kept ones included).
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

// Bytes that the buffers of a rank take at most beside its own tensors, by the schedule: copies of others'
// operands and the rank's own rows beside them; what is packed to leave; o and lse of rows that the rank
// attends with for others, kept for the backward pass; and results in fp32: of rows the accumulator and a
// part of one round, of keys those two, and what goes to the next rank and comes from the one before.
int64_t buffer_bytes(const Schedule& schedule, const Problem& problem, const Cost& cost, int rank,
                     Direction direction);

}  // namespace longspan
