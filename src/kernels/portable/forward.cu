// The instances of the portable forward kernel.
#include "base/cuda/device_code.h"
#include "kernels/portable/forward.h"
#include "kernels/portable/launch.cuh"

namespace longspan::portable {
namespace {

template <class C>
__global__ void __launch_bounds__(C::kThreads)
    portable_forward(const __grid_constant__ ForwardParams params) {
  Forward<PtxIsa, C>(params).run();
}

template <class Element, bool kChangesScores>
void start_forward(const ForwardShape& shape, const ForwardParams& params, Stream stream) {
  with_instance(kForwardInstances, shape, [&](auto index) {
    constexpr ForwardShape kShape = kForwardInstances[decltype(index)::value];
    using C = ForwardConfig<Element, kShape, kChangesScores>;
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
  with_policy(dtype, params.change, [&](auto element, auto changes) {
    start_forward<decltype(element), decltype(changes)::value>(shape, params, stream);
  });
}

std::string no_code_reason(const Device& device) {
  return cuda::no_code_reason(
      reinterpret_cast<const void*>(&portable_forward<ForwardConfig<Bf16, kForwardInstances[0]>>), device);
}

}  // namespace longspan::portable
