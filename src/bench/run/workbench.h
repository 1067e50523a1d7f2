// The concrete things that the runner works with. The program's main provides them: bench knows no kernel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/kernel_row.h"
#include "attention/tensors.h"
#include "bench/measure/testbed.h"
#include "bench/run/helper.h"
#include "record/record.h"

namespace longspan::bench {

// What verification found of one mask.
struct Accuracy : record::Accuracy {
  std::string failure;  // what is wrong, in words; empty if nothing is
};

// Called before each step, so that the runner knows where a case died and where its time went:
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
  Phase phase;               // called before each check; may be empty
  bool count_alone = false;  // skip the fp64 oracle if counting is possible
};
using Verify = std::function<Accuracy(const Subject&)>;

struct Workbench {
  std::vector<const Kernel*> kernels;
  std::vector<KernelRow> rows;  // of these kernels and of those that this build lacks; may be empty
  std::function<std::vector<Device>()> devices;
  std::function<std::unique_ptr<Testbed>(const Device&)> testbed;
  Verify verify;
  Helpers helpers;  // none if its functions are empty

  const Kernel* find(std::string_view kernel) const;
  std::vector<std::string> kernel_names() const;
};

// The device that a kernel's cases run on: the first of its kind; nullptr if there is none.
const Device* device_for(const Kernel& kernel, const std::vector<Device>& devices);

// The kernels that 'all' stands for on this machine: those of the best kind of device that it has.
std::vector<std::string> offered_kernels(const Workbench& workbench);

}  // namespace longspan::bench
