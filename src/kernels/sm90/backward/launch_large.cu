// Launches the backward kernel above head_dim 128 and picks the instance.
#include "base/error.h"
#include "kernels/gpu/shared_memory_grant.h"
#include "kernels/sm90/backward/large_kernel.cuh"
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/backward/start.cuh"

namespace longspan::sm90 {
namespace {

template <class C>
void start(const BackwardParams& params, const Device& device, cudaStream_t stream) {
  constexpr int kSharedBytes = sizeof(LargeBackwardMemory<C>);
  static_assert(kSharedBytes <= 227 * 1024, "the shared memory plan is larger than a CTA may have");
  static gpu::SharedMemoryGrant grant;
  grant.allow(sm90_backward_large<C>, kSharedBytes);
  start_backward<C>(sm90_backward_large<C>, kSharedBytes, params, device, stream);
}

template <class Element>
void start_for(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
               const Device& device, cudaStream_t stream) {
  using enum BackwardStore;
  LONGSPAN_CHECK(
      shape.rows == 64 && shape.keys == 128 && !shape.in_rows,
      "no instance of the backward kernel above head_dim 128 has tiles of {} queries by {} keys, in "
      "rows {}",
      shape.rows, shape.keys, shape.in_rows);
#define LONGSPAN_START(d, d_v, store_)                                                \
  if (problem.head_dim == (d) && problem.dim_v() == (d_v) && shape.store == (store_)) \
  return start<LargeBackwardConfig<Element, d, d_v, store_>>(params, device, stream)
  LONGSPAN_START(192, 128, kAdded);
  LONGSPAN_START(192, 128, kOrdered);
  LONGSPAN_START(256, 256, kAdded);
  LONGSPAN_START(256, 256, kOrdered);
#undef LONGSPAN_START
  LONGSPAN_CHECK(false, "no instance of the backward kernel has head_dim {} and {}, store {}",
                 problem.head_dim, problem.dim_v(), static_cast<int>(shape.store));
}

}  // namespace

void launch_large_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                           const Device& device, cudaStream_t stream) {
  if (problem.dtype == DType::kBF16)
    start_for<__nv_bfloat16>(problem, shape, params, device, stream);
  else
    start_for<__half>(problem, shape, params, device, stream);
}

}  // namespace longspan::sm90
