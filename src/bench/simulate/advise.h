// Predicts every strategy that a problem and a machine allow, with its degrees and placements, and orders
// them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"

namespace longspan::bench {

// A strategy with its options, on one problem. Times are those of a forward and a backward pass together.
struct Candidate {
  Parallelism parallelism;
  double forward_s = 0, backward_s = 0;
  double slower_links_s = 0, faster_links_s = 0;  // if all links carry a quarter less, or more
  double held_bytes = 0;                          // of the rank that holds the most; 0: not simulated

  double time_s() const { return forward_s + backward_s; }
};

// Candidates closer than this to the fastest one are too close to call: the bar for the mean error of
// predictions that tests hold (docs/concepts/simulation.md).
inline constexpr double kTooClose = 0.03;

// Every strategy that supports the case's heads and ranks, with each Ulysses degree and, over nodes, both
// placements. The case's own strategy is not read.
std::vector<Parallelism> candidates_of(const Case& problem);

// Fastest first. The case names the problem, the ranks and the transport; its strategy is not read.
std::vector<Candidate> advise(const Case& problem, const Machine& machine,
                              const std::function<void(const std::string&)>& progress = {});

}  // namespace longspan::bench
