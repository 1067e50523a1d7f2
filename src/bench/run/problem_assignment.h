// Which device measures what where a run has several: all kernels on one problem stay on one device, so that
// what is compared was measured on the same chip, a deterministic rate with the fast one, too. So do both
// passes: what a framework compiles for one of them serves the other.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/spec/case.h"

namespace longspan::bench {

// Equal for cases that differ in nothing but the kernel, the pass, and whether the same bits are demanded.
std::string problem_of(const Case& c);

// All kernels' cases of one problem, forward and backward.
struct Portion {
  std::string problem;
  std::vector<Case> cases;
};

// Problems in the order in which they first come up, the cases of each in their order.
std::vector<Portion> portions_of(const std::vector<Case>& cases);

// Hands out portions: each device takes the next one when it is done with its last. May be called from
// several threads at once.
class ProblemAssignment {
 public:
  // `homes`: the device of problems of which an earlier run has measured something already.
  ProblemAssignment(std::vector<Portion> portions, const std::map<std::string, size_t>& homes,
                    size_t devices);

  std::optional<Portion> next(size_t device);

 private:
  std::mutex mutex_;
  std::vector<std::deque<Portion>> own_;  // by device
  std::deque<Portion> anybodys_;
};

}  // namespace longspan::bench
