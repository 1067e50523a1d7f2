#include "base/backend.h"
#include "base/error.h"
#include "longspan/base.h"

namespace longspan {

Device cpu_device() {
  static const Device device = cpu_backend().devices().front();
  return device;
}

std::vector<Device> devices() {
  std::vector<Device> all = {cpu_device()};
  if (const Backend* cuda = cuda_backend()) {
    for (Device& device : cuda->devices()) all.push_back(std::move(device));
  }
  return all;
}

const Backend& backend_of(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return cpu_backend();
  const Backend* cuda = cuda_backend();
  LONGSPAN_CHECK_INPUT(cuda != nullptr, "{}", no_cuda_reason());
  return *cuda;
}

}  // namespace longspan
