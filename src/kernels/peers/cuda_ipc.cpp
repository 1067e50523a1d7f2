#include "kernels/peers/cuda_ipc.h"

#include <cuda.h>

#include "base/cuda.h"
#include "base/error.h"

namespace longspan::peers {
namespace {

// Through the runtime, so that the program does not need libcuda to start.
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

nlohmann::json shared_tensor(const TensorView& tensor) {
  LONGSPAN_CHECK(
      tensor.head_stride == tensor.head_dim && tensor.token_stride == tensor.heads * tensor.head_dim,
      "only a dense tensor can be shared");
  cudaIpcMemHandle_t handle;
  LONGSPAN_CUDA(cudaIpcGetMemHandle(&handle, tensor.data));
  std::string digits;
  for (const char byte : handle.reserved) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return {{"shape", {tensor.tokens, tensor.heads, tensor.head_dim}},
          {"dtype", name_of(tensor.dtype)},
          {"ipc", digits},
          {"offset", offset_in_allocation(tensor.data)}};
}

}  // namespace longspan::peers
