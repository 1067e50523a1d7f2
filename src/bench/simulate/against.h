// Compares predictions with measured results: errors by strategy, mask and pass, and what the predicted
// choice of a strategy would have lost.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/simulate/machine_file.h"
#include "bench/spec/case.h"

namespace longspan::bench {

// The parts of a time, each the mean over ranks, and memory; 0 for a case on one device.
struct Parts {
  double compute_s = 0, exposed_s = 0, reorder_s = 0, merge_s = 0;
  double held_bytes = 0;  // of the rank that holds the most
};

struct Compared {
  Case c;
  double measured_s = 0, predicted_s = 0;
  Parts measured, predicted;
  double error() const;  // relative to the measured time
};

// Predicts the measured cases of results files that the machine describes: its kernels, its transports, and
// at most its GPUs on a node. A case that was measured twice counts once, the last time.
// The measured cases of these files that the machine describes; not yet predicted.
std::vector<Compared> measured_cases(const std::vector<std::string>& paths, const Machine& machine);

// The one among them that is most like a case on several ranks: of its kernel, strategy and pass, with the
// nearest mask, ranks, nodes and tokens of a rank. Null if there is none.
const Compared* nearest(const std::vector<Compared>& cases, const Case& c);

std::vector<Compared> compare_with(const std::vector<std::string>& paths, const Machine& machine,
                                   const std::function<void(const std::string&)>& progress = {});

// The predicted best strategy of one problem and pass.
struct Choice {
  std::string what;  // "causal 32K, forward, 4 ranks"
  std::string chosen, best;
  double regret = 0;  // of the chosen one's measured time over the best one's, less 1
};
std::vector<Choice> choices(const std::vector<Compared>& cases);  // where several strategies were measured

}  // namespace longspan::bench
