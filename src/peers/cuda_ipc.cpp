#include "peers/cuda_ipc.h"

#include <cuda.h>

#include "base/cuda/cuda.h"
#include "base/error.h"

namespace longspan::peers {
namespace {

// Looked up through the runtime, so that the program starts without libcuda.
size_t offset_in_allocation(const void* pointer) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  LONGSPAN_CUDA(
      cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 3020, cudaEnableDefault, &found));
  LONGSPAN_CHECK(found == cudaDriverEntryPointSuccess, "the driver has no cuMemGetAddressRange");
  CUdeviceptr base = 0;
  size_t size = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const CUresult status = reinterpret_cast<decltype(&cuMemGetAddressRange)>(entry)(&base, &size, address);
  LONGSPAN_CHECK(status == CUDA_SUCCESS, "cuMemGetAddressRange: error {}", static_cast<int>(status));
  return address - base;
}

}  // namespace

nlohmann::json ipc_handle(const TensorView& tensor) {
  cudaIpcMemHandle_t handle;
  const cudaError_t status = cudaIpcGetMemHandle(&handle, tensor.data);
  if (status == cudaErrorNotSupported || status == cudaErrorInvalidValue) {
    cudaGetLastError();  // handled here; clear it for the next check
    return nullptr;
  }
  LONGSPAN_CUDA(status);
  std::string digits;
  for (const char byte : handle.reserved) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return {{"ipc", digits}, {"offset", offset_in_allocation(tensor.data)}};
}

}  // namespace longspan::peers
