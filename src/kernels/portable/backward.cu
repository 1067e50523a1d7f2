// The instances of the portable backward kernel, and the passes before and after it.
#include "kernels/portable/backward.h"
#include "kernels/portable/launch.cuh"
#include "kernels/portable/passes.h"

namespace longspan::portable {
namespace {

template <class Element>
__global__ void __launch_bounds__(kPassThreads)
    portable_prepare(const __grid_constant__ BackwardParams params) {
  prepare_rows<PtxIsa, Element>(params);
}

template <class Element>
__global__ void __launch_bounds__(kPassThreads)
    portable_finish(const __grid_constant__ BackwardParams params) {
  finish_rows<PtxIsa, Element>(params);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads)
    portable_backward(const __grid_constant__ BackwardParams params) {
  Backward<PtxIsa, C>(params).run();
}

template <class Element, bool kChangesScores>
void start_backward(const BackwardShape& shape, const BackwardParams& params, Stream stream) {
  const cudaStream_t raw = cuda::raw(stream);
  const unsigned tiles = grid_of(int64_t{params.heads.units()} * params.query_tiles);
  if (tiles > 0) {
    portable_prepare<Element><<<tiles, kPassThreads, 0, raw>>>(params);
    LONGSPAN_CUDA_LAUNCHED();
  }
  with_instance(kBackwardInstances, shape, [&](auto index) {
    constexpr BackwardShape kShape = kBackwardInstances[decltype(index)::value];
    using C = BackwardConfig<Element, kShape, kChangesScores>;
    static gpu::SharedMemoryGrant grant;
    grant.allow(portable_backward<C>, static_cast<int>(kShape.shared_bytes()));
    const unsigned ctas = grid_of(params.order.items());
    if (ctas == 0) return;
    portable_backward<C><<<ctas, C::kThreads, kShape.shared_bytes(), raw>>>(params);
    LONGSPAN_CUDA_LAUNCHED();
  });
  if (tiles == 0) return;
  portable_finish<Element><<<tiles, kPassThreads, 0, raw>>>(params);
  LONGSPAN_CUDA_LAUNCHED();
}

}  // namespace

void launch_backward(DType dtype, const BackwardShape& shape, const BackwardParams& params, Stream stream) {
  with_policy(dtype, params.change, [&](auto element, auto changes) {
    start_backward<decltype(element), decltype(changes)::value>(shape, params, stream);
  });
}

}  // namespace longspan::portable
