// Starts an instance of the forward kernel.
#pragma once

#include <algorithm>

#include <cuda_runtime_api.h>

#include "base/ceil_div.h"
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
  if constexpr (!C::kMerges && !C::kPaired)
    if (merges(params)) return start_forward<Merging<C>>(params, device, stream);
  constexpr int kCtas = C::kPaired ? 2 : 1;  // that share an item
  cudaLaunchAttribute attributes[2] = {dependent_launch(), launch_in_pairs()};
  cudaLaunchConfig_t config = {};
  config.blockDim = C::kThreads;
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes<C>());
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = kCtas;
  int64_t items = ceil_div(params.order.items(), C::kStreams), workers = device.units;
  if constexpr (C::kPaired) {
    const int most = std::max(device.units / kCtas, 1);
    config.gridDim = static_cast<unsigned>(kCtas * most);
    static const int resident = resident_pairs(sm90_forward<C>, config);  // on this process' first GPU
    items = ceil_div(params.order.row_tiles, kCtas) * params.order.units;
    workers = std::min(resident, most);
  }
  config.gridDim = static_cast<unsigned>(kCtas * std::min(workers, items));
  // Only a kernel that counts waits for the one before, so only then may it begin early: behind
  // clear_counters(), which begins when q, k and v are there.
  const bool counts = items > workers;
  attributes[0].val.programmaticStreamSerializationAllowed = counts ? 1 : 0;
  if (counts)
    clear_forward_counters(params, stream);
  else
    params.next_item = nullptr;
  LONGSPAN_CUDA(cudaLaunchKernelEx(&config, sm90_forward<C>, params));
}

}  // namespace longspan::sm90
