// Stands in for what the GPU needs in a build without CUDA.
#include "base/error.h"
#include "cp/device_clock.h"

namespace longspan {

std::unique_ptr<DeviceClock> make_cuda_clock(const Device& device) {
  LONGSPAN_CHECK(false, "this build has no CUDA for {}", device.name);
  return nullptr;
}

}  // namespace longspan
