// Starts an instance of the forward kernel.
#pragma once

#include <algorithm>

#include <cuda_runtime_api.h>

#include "base/cuda/cuda_check.h"
#include "kernels/gpu/shared_memory_grant.h"
#include "kernels/sm90/forward/kernel.cuh"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "longspan/base.h"

namespace longspan::sm90 {

template <class C>
int shared_bytes() {
  constexpr int kBytes = sizeof(SharedMemoryPlan<C>);
  static_assert(kBytes <= 227 * 1024, "the shared memory plan is larger than a CTA may have");
  static gpu::SharedMemoryGrant grant;
  grant.allow(sm90_forward<C>, kBytes);
  return kBytes;
}

// Sets the counters to zero. The forward kernel begins meanwhile and waits before it uses them.
void clear_forward_counters(const ForwardParams& params, cudaStream_t stream);

// Whether its result is merged with a partial one.
inline bool merges(const ForwardParams& params) {
  return params.part_lse != nullptr || params.sinks != nullptr;
}
// Whether CTA pairs compute it. No instance merges in pairs.
inline bool in_pairs(const ForwardShape& shape, const ForwardParams& params) {
  return shape.paired && !merges(params);
}

template <class C>
void start_forward(ForwardParams& params, const Device& device, cudaStream_t stream) {
  if constexpr (!C::kMerges)
    if (merges(params)) return start_forward<Merging<C>>(params, device, stream);
  const int64_t blocks = (int64_t{params.order.items()} + C::kStreams - 1) / C::kStreams;
  const int64_t ctas = std::min<int64_t>(device.units, blocks);
  const bool counts = blocks > ctas;
  if (!counts) params.next_item = nullptr;
  // Only a kernel that counts waits for the one before, so only then may it begin early: behind
  // clear_counters(), which begins when q, k and v are there.
  if (counts) clear_forward_counters(params, stream);
  cudaLaunchAttribute attribute = dependent_launch();
  attribute.val.programmaticStreamSerializationAllowed = counts ? 1 : 0;
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(ctas);
  config.blockDim = C::kThreads;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes<C>());
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  LONGSPAN_CUDA(cudaLaunchKernelEx(&config, sm90_forward<C>, params));
}

// The same in CTA pairs.
template <class C>
void start_forward_in_pairs(ForwardParams& params, const Device& device, cudaStream_t stream) {
  using Pair = Paired<C>;
  cudaLaunchAttribute attributes[2] = {launch_in_pairs(), dependent_launch()};
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(device.units / 2 * 2);
  config.blockDim = Pair::kThreads;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes<Pair>());
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 1;
  static const int resident = resident_pairs(sm90_forward<Pair>, config);  // on this process' first GPU
  const int items = (params.order.row_tiles + 1) / 2 * params.order.units;
  const int pairs = std::min({items, resident, std::max(device.units / 2, 1)});
  config.gridDim = static_cast<unsigned>(2 * pairs);
  if (items > pairs) {
    clear_forward_counters(params, stream);
    config.numAttrs = 2;
  } else {
    params.next_item = nullptr;
  }
  LONGSPAN_CUDA(cudaLaunchKernelEx(&config, sm90_forward<Pair>, params));
}

}  // namespace longspan::sm90
