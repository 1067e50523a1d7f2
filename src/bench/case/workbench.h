// The kernels, devices and oracles that the runner uses. The program provides them; bench knows only their
// interfaces.
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
#include "bench/case/helper.h"
#include "bench/measure/testbed.h"
#include "record/record.h"

namespace longspan::bench {

// The result of verifying one mask.
struct Accuracy : record::Accuracy {
  std::string failure;  // what is wrong, in words; empty if correct
};

// Called before each step ("planning", "timing", ...), so that the runner knows where a case failed and how
// its time was spent.
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
  std::vector<KernelRow> rows;  // of all kernels, including those not in this build; may be empty
  std::function<std::vector<Device>()> devices;
  std::function<std::unique_ptr<Testbed>(const Device&)> testbed;
  Verify verify;
  Helpers helpers;  // its functions may be empty

  const Kernel* find(std::string_view kernel) const;
  std::vector<std::string> kernel_names() const;
};

// The device that a kernel's cases run on: the first of its kind; nullptr if there is none, or no kernel.
const Device* device_for(const Kernel* kernel, const std::vector<Device>& devices);

// The kernels that 'all' stands for on this machine: those for its GPUs, or for the CPU if it has none.
std::vector<std::string> offered_kernels(const Workbench& workbench);

}  // namespace longspan::bench
