// Launches the backward kernel and picks the instance.
#include <algorithm>
#include <type_traits>

#include "base/cuda/cuda_check.h"
#include "base/error.h"
#include "kernels/gpu/shared_memory_grant.h"
#include "kernels/sm90/backward/kernel.cuh"
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/isa/dependent_launch.cuh"

namespace longspan::sm90 {
namespace {

template <class C>
void start(const BackwardParams& params, const Device& device, cudaStream_t stream) {
  constexpr int kSharedBytes = sizeof(BackwardSharedMemory<C>);
  static_assert(kSharedBytes <= 227 * 1024, "the shared memory plan is larger than a CTA may have");
  static gpu::SharedMemoryGrant grant;
  grant.allow(sm90_backward<C>, kSharedBytes);
  const int pass_ctas = C::kPasses ? params.pass_ctas : 0;
  LONGSPAN_CHECK(pass_ctas == params.pass_ctas && pass_ctas < device.units,
                 "{} CTAs are to do passes: this instance takes none, or there are only {} SMs",
                 params.pass_ctas, device.units);
  const bool scheduled = params.next_item != nullptr;
  const int streams = scheduled ? params.streams : params.items;
  const int workers = (streams + C::kStreams - 1) / C::kStreams;
  LONGSPAN_CHECK(!scheduled || (C::kScheduled && workers + pass_ctas <= device.units),
                 "a schedule for {1} CTAs beside {2} pass CTAs: this instance {0} follow a schedule, and "
                 "there are {3} SMs",
                 C::kScheduled ? "can" : "cannot", workers, pass_ctas, device.units);
  const auto grid = static_cast<unsigned>(std::min(device.units, workers + pass_ctas));
  // CTAs that follow a schedule or wait for turns wait for others that may begin later, so all must be
  // resident. CTAs also wait for passes, but only for those of the first CTAs to begin; and these wait for
  // items, for which one more resident CTA suffices.
  const bool all_resident = scheduled || C::kOrdered;
  cudaLaunchAttribute attribute = dependent_launch();
  if (all_resident) {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = C::kThreads;
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t status = cudaLaunchKernelEx(&config, sm90_backward<C>, params);
  if (status == cudaErrorCooperativeLaunchTooLarge) {
    cudaGetLastError();
    throw Error(
        ErrorKind::kUnsupported,
        fmt::format(
            "the backward pass was planned for {} SMs at once, and this process may use fewer (MPS, a green "
            "context): plan for as many SMs as it may use",
            grid),
        __FILE__, __LINE__, "cudaLaunchKernelEx");
  }
  LONGSPAN_CUDA(status);
}

template <class Element>
void start_for(int64_t head_dim, const BackwardShape& shape, const BackwardParams& params,
               const Device& device, cudaStream_t stream) {
  using enum BackwardStore;
  const bool rests = shape.rest == BackwardRest::kAlways;
#define LONGSPAN_START(d, rows_, keys_, store_, in_rows_, rests_)                                        \
  if (head_dim == (d) && shape.rows == (rows_) && shape.keys == (keys_) && shape.store == (store_) &&    \
      shape.in_rows == (in_rows_) && rests == (rests_))                                                  \
  return start<BackwardConfig<Element, d, rows_, 128 / keys_, store_, in_rows_, rests_>>(params, device, \
                                                                                         stream)
  LONGSPAN_START(128, 64, 128, kClaimed, true, false);
  LONGSPAN_START(128, 64, 128, kClaimed, true, true);
  LONGSPAN_START(128, 64, 128, kClaimed, false, false);
  LONGSPAN_START(128, 64, 128, kAdded, true, false);
  LONGSPAN_START(128, 64, 128, kAdded, true, true);
  LONGSPAN_START(128, 64, 128, kAdded, false, false);
  LONGSPAN_START(128, 80, 128, kAdded, false, false);
  LONGSPAN_START(128, 64, 128, kOrdered, true, false);
  LONGSPAN_START(128, 64, 128, kOrdered, false, false);
  LONGSPAN_START(128, 80, 128, kOrdered, false, false);
  LONGSPAN_START(128, 64, 64, kRegisters, false, false);
  LONGSPAN_START(128, 64, 64, kOrdered, false, false);
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    LONGSPAN_START(64, 128, 128, kClaimed, true, false);
    LONGSPAN_START(64, 128, 128, kClaimed, false, false);
    LONGSPAN_START(64, 128, 128, kAdded, true, false);
    LONGSPAN_START(64, 128, 128, kAdded, false, false);
  }
  LONGSPAN_START(64, 64, 128, kClaimed, true, false);
  LONGSPAN_START(64, 64, 128, kAdded, true, false);
  LONGSPAN_START(64, 64, 128, kOrdered, true, false);
  LONGSPAN_START(64, 64, 64, kRegisters, false, false);
  LONGSPAN_START(64, 64, 64, kOrdered, false, false);
#undef LONGSPAN_START
  LONGSPAN_CHECK(false,
                 "no instance of the backward kernel has head_dim {}, tiles of {} queries by {} keys, store "
                 "{}, in rows {}, rests {}",
                 head_dim, shape.rows, shape.keys, static_cast<int>(shape.store), shape.in_rows, rests);
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
