// Launches the backward kernel and picks the instance.
#include <type_traits>

#include "base/error.h"
#include "kernels/gpu/shared_memory_grant.h"
#include "kernels/sm90/backward/kernel.cuh"
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/backward/start.cuh"

namespace longspan::sm90 {
namespace {

template <class C>
void start(const BackwardParams& params, const Device& device, cudaStream_t stream) {
  constexpr int kSharedBytes = sizeof(BackwardSharedMemory<C>);
  static_assert(kSharedBytes <= 227 * 1024, "the shared memory plan is larger than a CTA may have");
  static gpu::SharedMemoryGrant grant;
  grant.allow(sm90_backward<C>, kSharedBytes);
  start_backward<C>(sm90_backward<C>, kSharedBytes, params, device, stream);
}

template <class Element>
void start_for(int64_t head_dim, const BackwardShape& shape, const BackwardParams& params,
               const Device& device, cudaStream_t stream) {
  using enum BackwardStore;
#define LONGSPAN_START(d, rows_, keys_, store_, in_rows_)                                             \
  if (head_dim == (d) && shape.rows == (rows_) && shape.keys == (keys_) && shape.store == (store_) && \
      shape.in_rows == (in_rows_))                                                                    \
  return start<BackwardConfig<Element, d, rows_, keys_, store_, in_rows_>>(params, device, stream)
  LONGSPAN_START(128, 64, 128, kClaimed, true);
  LONGSPAN_START(128, 64, 128, kClaimed, false);
  LONGSPAN_START(128, 64, 128, kAdded, true);
  LONGSPAN_START(128, 64, 128, kAdded, false);
  LONGSPAN_START(128, 80, 128, kAdded, false);
  LONGSPAN_START(128, 64, 128, kOrdered, true);
  LONGSPAN_START(128, 64, 128, kOrdered, false);
  LONGSPAN_START(128, 80, 128, kOrdered, false);
  LONGSPAN_START(128, 64, 64, kRegisters, false);
  LONGSPAN_START(128, 64, 64, kOrdered, false);
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    LONGSPAN_START(64, 64, 192, kClaimed, true);
    LONGSPAN_START(64, 64, 192, kAdded, true);
    LONGSPAN_START(64, 64, 192, kAdded, false);
    LONGSPAN_START(64, 128, 128, kClaimed, true);
    LONGSPAN_START(64, 128, 128, kClaimed, false);
    LONGSPAN_START(64, 128, 128, kAdded, false);
  }
  LONGSPAN_START(64, 64, 128, kClaimed, true);
  LONGSPAN_START(64, 64, 128, kAdded, true);
  LONGSPAN_START(64, 64, 128, kOrdered, true);
  LONGSPAN_START(64, 64, 64, kRegisters, false);
  LONGSPAN_START(64, 64, 64, kOrdered, false);
#undef LONGSPAN_START
  LONGSPAN_CHECK(false,
                 "no instance of the backward kernel has head_dim {}, tiles of {} queries by {} keys, store "
                 "{}, in rows {}",
                 head_dim, shape.rows, shape.keys, static_cast<int>(shape.store), shape.in_rows);
}

}  // namespace

void launch_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                     const Device& device, cudaStream_t stream) {
  if (shape.large)
    launch_large_backward(problem, shape, params, device, stream);
  else if (problem.dtype == DType::kBF16)
    start_for<__nv_bfloat16>(problem.head_dim, shape, params, device, stream);
  else
    start_for<__half>(problem.head_dim, shape, params, device, stream);
}

}  // namespace longspan::sm90
