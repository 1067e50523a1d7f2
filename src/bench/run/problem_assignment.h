// Which device of a run measures what. All kernels on one problem run on one device, so that compared rates
// come from the same chip. Both passes run there too, since a framework compiles for both at once.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/spec/case.h"

namespace longspan::bench {

// Equal for cases that differ only in the kernel, the pass, and whether the same bits are demanded.
std::string problem_of(const Case& c);

// All kernels' cases of one problem, forward and backward.
struct Portion {
  std::string problem;
  std::vector<Case> cases;
};

// Problems in the order of their first case; the cases of each keep their order.
std::vector<Portion> portions_of(const std::vector<Case>& cases);

// Hands out portions: a device takes the next one when it has finished its last. Several threads may call at
// once.
class ProblemAssignment {
 public:
  // `homes`: the device on which an earlier run has measured a part of the problem.
  ProblemAssignment(std::vector<Portion> portions, const std::map<std::string, size_t>& homes,
                    size_t devices);

  std::optional<Portion> next(size_t device);

 private:
  std::mutex mutex_;
  std::vector<std::deque<Portion>> own_;  // by device
  std::deque<Portion> anybodys_;
};

}  // namespace longspan::bench
