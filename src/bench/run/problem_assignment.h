// Which device of a run measures which cases. All kernels of one problem run on the same device, so that
// compared rates come from the same chip. Both passes run there too, since a framework compiles both at once.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/spec/case.h"

namespace longspan::bench {

// Equal for cases that differ only in the kernel, the pass and `deterministic`.
std::string problem_of(const Case& c);

// The cases of one problem: all kernels, forward and backward.
struct Portion {
  std::string problem;
  std::vector<Case> cases;
};

// Problems in the order of their first case; the cases of each keep their order.
std::vector<Portion> portions_of(const std::vector<Case>& cases);

// Assigns portions: a device takes the next one when it has finished its last. Thread-safe.
class ProblemAssignment {
 public:
  // `homes`: the device, by problem, on which an earlier run measured a part of it.
  ProblemAssignment(std::vector<Portion> portions, const std::map<std::string, size_t>& homes,
                    size_t devices);

  std::optional<Portion> next(size_t device);

 private:
  std::mutex mutex_;
  std::vector<std::deque<Portion>> own_;  // by device
  std::deque<Portion> unassigned_;
};

}  // namespace longspan::bench
