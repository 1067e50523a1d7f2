// The instances of the backward kernel.
#include <algorithm>
#include <type_traits>

#include "base/cuda_check.h"
#include "base/error.h"
#include "kernels/sm90/backward_kernel.cuh"
#include "kernels/sm90/backward_launch.h"

namespace longspan::sm90 {
namespace {

template <class C>
void start(const BackwardParams& params, const Device& device, cudaStream_t stream) {
  constexpr int kSharedBytes = sizeof(BackwardSharedMemory<C>);
  static_assert(kSharedBytes <= 227 * 1024, "the shared memory plan is larger than a block may have");
  LONGSPAN_CUDA(
      cudaFuncSetAttribute(sm90_backward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const auto grid =
      static_cast<unsigned>(std::min(device.units, (params.items + C::kStreams - 1) / C::kStreams));
  sm90_backward<C><<<grid, C::kThreads, kSharedBytes, stream>>>(params);
  LONGSPAN_CUDA_LAUNCHED();
}

template <class Element>
void start_for(int64_t head_dim, const BackwardShape& shape, const BackwardParams& params,
               const Device& device, cudaStream_t stream) {
  using enum BackwardStore;
#define LONGSPAN_START(d, rows_, keys_, q_stages, ahead, store_, transposed)                             \
  if (head_dim == (d) &&                                                                                 \
      shape == BackwardShape{rows_, keys_, ahead, store_, transposed, shape.parts, shape.section_units}) \
  return start<BackwardConfig<Element, d, rows_, 128 / keys_, q_stages, ahead, store_, transposed>>(     \
      params, device, stream)
  LONGSPAN_START(128, 64, 128, 2, false, kClaimed, true);
  LONGSPAN_START(128, 64, 128, 2, false, kOrdered, true);
  LONGSPAN_START(128, 64, 64, 2, false, kRegisters, true);
  LONGSPAN_START(64, 64, 128, 3, false, kClaimed, true);
  LONGSPAN_START(64, 64, 128, 3, false, kOrdered, true);
  LONGSPAN_START(64, 64, 64, 3, false, kRegisters, true);
#ifdef LONGSPAN_SM90_BACKWARD_TRIALS  // for tests/gpu/kernels/sm90_backward_probe.cpp
  LONGSPAN_START(128, 64, 128, 2, true, kClaimed, true);
  LONGSPAN_START(128, 64, 128, 2, true, kOrdered, true);
  LONGSPAN_START(128, 64, 128, 2, false, kClaimed, false);
  LONGSPAN_START(128, 64, 128, 2, false, kOrdered, false);
  LONGSPAN_START(128, 64, 128, 2, true, kClaimed, false);
  LONGSPAN_START(128, 64, 128, 2, true, kOrdered, false);
  LONGSPAN_START(64, 64, 128, 3, true, kClaimed, true);
  LONGSPAN_START(64, 64, 128, 3, true, kOrdered, true);
#endif
#undef LONGSPAN_START
  LONGSPAN_CHECK(false, "no instance of the backward kernel has head_dim {} and {} rows", head_dim,
                 shape.rows);
}

}  // namespace

void launch_backward(int64_t head_dim, DType dtype, const BackwardShape& shape, const BackwardParams& params,
                     const Device& device, cudaStream_t stream) {
  if (dtype == DType::kBF16)
    start_for<__nv_bfloat16>(head_dim, shape, params, device, stream);
  else
    start_for<__half>(head_dim, shape, params, device, stream);
}

}  // namespace longspan::sm90
