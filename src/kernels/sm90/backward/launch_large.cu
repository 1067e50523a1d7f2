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

template <class Element, BackwardStore kStore>
void start_for(int64_t head_dim, int64_t head_dim_v, const BackwardParams& params, const Device& device,
               cudaStream_t stream) {
  if (head_dim == 192 && head_dim_v == 128)
    return start<LargeBackwardConfig<Element, 192, 128, kStore>>(params, device, stream);
  if (head_dim == 256 && head_dim_v == 256)
    return start<LargeBackwardConfig<Element, 256, 256, kStore>>(params, device, stream);
  LONGSPAN_CHECK(false, "no instance of the backward kernel has head_dim {} and {}", head_dim, head_dim_v);
}

template <class Element>
void start_for(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
               const Device& device, cudaStream_t stream) {
  using enum BackwardStore;
  LONGSPAN_CHECK(
      shape.rows == 64 && shape.keys == 64 && !shape.in_rows,
      "no instance of the backward kernel above head_dim 128 has tiles of {} queries by {} keys, in "
      "rows {}",
      shape.rows, shape.keys, shape.in_rows);
  if (shape.store == kOrdered)
    return start_for<Element, kOrdered>(problem.head_dim, problem.dim_v(), params, device, stream);
  LONGSPAN_CHECK(shape.store == kRegisters, "no instance above head_dim 128 has store {}",
                 static_cast<int>(shape.store));
  start_for<Element, kRegisters>(problem.head_dim, problem.dim_v(), params, device, stream);
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
