// Divides ranks among the micro-batches of a step: a group of ranks computes each, and several groups compute
// at a time.
#pragma once

#include <cstddef>
#include <vector>

namespace longspan::bench {

// What a micro-batch takes on a group of so many ranks.
struct GroupTime {
  int degree = 1;  // divides the number of ranks
  double time_s = 0;
};

// The time of a step. The largest groups are placed first, and of equal ones the longest, each where ranks
// are free first; a group of d ranks begins at a multiple of d, so that it stays within a node if it can. A
// pipeline of `stages` adds the longest micro-batch's time for each further stage.
double step_time_s(int ranks, int stages, std::vector<GroupTime> micro_batches);

// The group of each micro-batch, as an index into its choices, that makes a short step. Tries each time of
// any choice as a deadline, and gives each micro-batch the fewest ranks that meet it (Turek, Wolf, Yu 1992);
// and each degree for all. Every micro-batch needs a choice.
std::vector<size_t> choose_groups(int ranks, int stages, const std::vector<std::vector<GroupTime>>& choices);

}  // namespace longspan::bench
