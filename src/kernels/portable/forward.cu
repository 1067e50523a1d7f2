// The instances of the portable forward kernel.
#include "kernels/portable/forward.h"
#include "kernels/portable/launch.cuh"

namespace longspan::portable {
namespace {

template <class C>
__global__ void __launch_bounds__(C::kThreads)
    portable_forward(const __grid_constant__ ForwardParams params) {
  Forward<PtxIsa, C>(params).run();
}

template <class Element>
void start_forward(const ForwardShape& shape, const ForwardParams& params, Stream stream) {
  with_instance(generic::kForwardShapes, shape, [&](auto index) {
    constexpr ForwardShape kShape = generic::kForwardShapes[decltype(index)::value];
    using C = ForwardConfig<Element, kShape>;
    static gpu::SharedMemoryGrant grant;
    grant.allow(portable_forward<C>, static_cast<int>(kShape.shared_bytes()));
    const unsigned ctas = grid_of(params.order.items());
    if (ctas == 0) return;
    portable_forward<C><<<ctas, C::kThreads, kShape.shared_bytes(), cuda::raw(stream)>>>(params);
    LONGSPAN_CUDA_LAUNCHED();
  });
}

}  // namespace

void launch_forward(DType dtype, const ForwardShape& shape, const ForwardParams& params, Stream stream) {
  dtype == DType::kBF16 ? start_forward<Bf16>(shape, params, stream)
                        : start_forward<F16>(shape, params, stream);
}

std::string no_code_reason(const Device& device) {
  // Support is also queried on machines without a GPU, where the machine code cannot be checked.
  if (int count = 0; cudaGetDeviceCount(&count) != cudaSuccess || device.index >= count) {
    cudaGetLastError();
    return "";
  }
  const cuda::DeviceGuard guard(device.index);
  cudaFuncAttributes attributes{};
  const cudaError_t status =
      cudaFuncGetAttributes(&attributes, portable_forward<ForwardConfig<Bf16, generic::kForwardShapes[0]>>);
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

}  // namespace longspan::portable
