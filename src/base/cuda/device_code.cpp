#include "base/cuda/device_code.h"

#include <fmt/format.h>

#include "base/cuda/cuda.h"

namespace longspan::cuda {

std::string no_code_reason(const void* kernel, const Device& device) {
  // Support is also queried on machines without a GPU, where the machine code cannot be checked.
  if (int count = 0; cudaGetDeviceCount(&count) != cudaSuccess || device.index >= count) {
    cudaGetLastError();
    return "";
  }
  const DeviceGuard guard(device.index);
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
  switch (status) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidPtx:
    case cudaErrorUnsupportedPtxVersion:
      cudaGetLastError();
      return fmt::format("this build has no code for compute capability {}.{} ({})", device.capability / 10,
                         device.capability % 10, cudaGetErrorString(status));
    default:
      LONGSPAN_CUDA(status);
      return "";
  }
}

}  // namespace longspan::cuda
