// Everything concrete that the runner works with, handed in by the program's main: bench knows no kernel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/kernel.h"
#include "attention/tensors.h"
#include "bench/measure/testbed.h"
#include "bench/run/helper.h"

namespace longspan::bench {

// What verification found of one mask.
struct Accuracy {
  std::vector<std::string> checked;         // "o", "lse", "dq", "dk", "dv", "counting"
  std::map<std::string, double> max_error;  // by tensor; as docs/concepts/proof.md defines it
  std::map<std::string, double> tolerance;
  std::string counting;           // "pass" or "fail"; empty if not checked
  int64_t rows = 0, columns = 0;  // compared
  std::string failure;            // what is wrong, in words; empty if nothing is
  std::optional<bool> same_bits;  // of two runs; nothing where that is not demanded
};

// Told before each step, so that whoever watches knows where a case died, and where its time went:
// "planning", "timing", ...
using Phase = std::function<void(const std::string&)>;

struct Subject {
  const Kernel& kernel;
  Plan& plan;
  const Problem& problem;
  Direction direction;
  const DeviceTensors& tensors;  // the outputs hold what the kernel wrote
  Testbed& testbed;
  uint64_t seed = 0;         // picks the rows and columns to compare
  Phase phase;               // told before each check; may be empty
  bool count_alone = false;  // without comparing with the fp64 oracle, if counting can be done
};
using Verify = std::function<Accuracy(const Subject&)>;

struct Workbench {
  std::vector<const Kernel*> kernels;
  std::function<std::vector<Device>()> devices;
  std::function<std::unique_ptr<Testbed>(const Device&)> testbed;
  Verify verify;
  Helpers helpers;  // none if its functions are empty

  const Kernel* find(std::string_view kernel) const;
  std::vector<std::string> kernel_names() const;
};

}  // namespace longspan::bench
