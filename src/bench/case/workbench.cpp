// Finds kernels by name and devices by kernel.
#include "bench/case/workbench.h"

namespace longspan::bench {

const Kernel* Workbench::find(std::string_view kernel) const {
  for (const Kernel* candidate : kernels) {
    if (candidate->name() == kernel) return candidate;
  }
  return nullptr;
}

std::vector<std::string> Workbench::kernel_names() const {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels) names.emplace_back(kernel->name());
  return names;
}

const Device* device_for(const Kernel* kernel, const std::vector<Device>& devices) {
  for (const Device& device : devices) {
    if (kernel != nullptr && device.kind == kernel->device_kind()) return &device;
  }
  return nullptr;
}

std::vector<std::string> offered_kernels(const Workbench& workbench) {
  DeviceKind best = DeviceKind::kCpu;
  const std::vector<Device> devices = workbench.devices();
  for (const Kernel* kernel : workbench.kernels) {
    if (kernel->device_kind() == DeviceKind::kCuda && device_for(kernel, devices) != nullptr) {
      best = DeviceKind::kCuda;
    }
  }
  std::vector<std::string> names;
  for (const Kernel* kernel : workbench.kernels) {
    if (kernel->device_kind() == best) names.emplace_back(kernel->name());
  }
  return names;
}

}  // namespace longspan::bench
