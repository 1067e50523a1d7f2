// Predicts every kernel and strategy that a problem and a machine allow, with degrees and placements, and
// orders them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"

namespace longspan::bench {

// A kernel and a strategy with its options, on one problem. Times are those of a forward and a backward pass
// together.
struct Candidate {
  std::string kernel;
  Parallelism parallelism;
  double forward_s = 0, backward_s = 0;
  double slower_links_s = 0, faster_links_s = 0;  // if all links carry a quarter less, or more
  double held_bytes = 0;                          // of the rank that holds the most
  double memory_bytes = 0;  // of the fullest rank: its tensors and gradients, and these buffers
  bool fits = true;         // in the memory that was given
  // What the slowest rank's time in both passes consists of.
  double compute_s = 0, exposed_s = 0, reorder_s = 0, merge_s = 0;

  double time_s() const { return forward_s + backward_s; }
};

// Candidates closer than this to the fastest one are too close to call: the bar for the mean error of
// predictions that tests hold (docs/concepts/simulation.md).
inline constexpr double kTooClose = 0.03;

// Which shardings are tried: what each strategy chooses by itself, or also the others that it may be given.
enum class Shardings : bool { kOwn, kAll };

// Every strategy that supports the case's heads and ranks, with each Ulysses degree and, over nodes, both
// placements. The case's own strategy is not read.
std::vector<Parallelism> candidates_of(const Case& problem, Shardings shardings = Shardings::kOwn);

// Why a candidate is slower than another: the part of its time that exceeds the other's by the most.
std::string reason_of(const Candidate& slower, const Candidate& faster);

struct Advice {
  std::vector<Candidate> candidates;           // fastest first, then those that do not fit
  std::map<std::string, std::string> refused;  // kernels of the machine that do not take the tensors: why
};

// Candidates do not fit beyond `memory_bytes` of a rank; 0: no limit. The case names the problem, the ranks
// and the transport; its strategy is not read. If it names no kernel, each of the machine's is tried. Throws
// an input error if none takes the tensors.
Advice advise(const Case& problem, const Machine& machine, double memory_bytes, Shardings shardings,
              const std::function<void(const std::string&)>& progress = {});

}  // namespace longspan::bench
