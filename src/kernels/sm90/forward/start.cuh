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

// The launch configuration of `ctas` CTAs, in clusters of two if they are pairs.
template <class C>
struct ForwardLaunch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  // `dependent`: it may begin while the kernel before runs.
  ForwardLaunch(int64_t ctas, bool dependent, cudaStream_t stream) {
    attributes[0] = dependent_launch();
    attributes[0].val.programmaticStreamSerializationAllowed = dependent ? 1 : 0;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {2, 1, 1};
    config.gridDim = static_cast<unsigned>(ctas);
    config.blockDim = C::kThreads;
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes<C>());
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = C::kPaired ? 2 : 1;
  }
  ForwardLaunch(const ForwardLaunch&) = delete;
};

// Sets the counters to zero. The forward kernel begins meanwhile and waits before it uses them.
void clear_forward_counters(const ForwardParams& params, cudaStream_t stream);

template <class C>
void start_forward(ForwardParams& params, const Device& device, int32_t workers, cudaStream_t stream) {
  if constexpr (!C::kMerges)
    if (params.part_lse != nullptr) return start_forward<Merging<C>>(params, device, workers, stream);
  int64_t ctas = 0;
  bool counts = false;
  if constexpr (C::kPaired) {
    const int64_t items =
        C::kSplits ? int64_t{params.whole_items} + params.parts_count : params.order.items();
    ctas = 2 * std::min<int64_t>(workers, items);
    counts = C::kSplits && params.parts_count > 0;
  } else {
    const int64_t blocks = (int64_t{params.order.items()} + C::kStreams - 1) / C::kStreams;
    ctas = std::min<int64_t>(device.units, blocks);
    counts = blocks > ctas;
    if (!counts) params.next_item = nullptr;
  }
  // Only a kernel that counts waits for the one before, so only then may it begin early: behind
  // clear_counters(), which begins when q, k and v are there.
  if (counts) clear_forward_counters(params, stream);
  const ForwardLaunch<C> launch(ctas, counts, stream);
  LONGSPAN_CUDA(cudaLaunchKernelEx(&launch.config, sm90_forward<C>, params));
}

}  // namespace longspan::sm90
