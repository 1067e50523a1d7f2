// CTA pairs: clusters of two CTAs, which share what both load.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "base/cuda/cuda_check.h"
#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {

// ---- device ----------------------------------------------------------------------------------------------

// Items' numbers on their way from the first CTA's load warp, which takes them, to the second one's.
struct PairNumbers {
  static constexpr uint32_t kSlots = 2;
  Mbarrier full[kSlots], empty[kSlots];  // of the second CTA; of the first one
  int32_t number[kSlots];
};

__device__ __forceinline__ void init_pair_numbers(PairNumbers& numbers) {
  for (Mbarrier& full : numbers.full) mbarrier_init(full, 1);
  for (Mbarrier& empty : numbers.empty) mbarrier_init(empty, 1);
}

// Returns the first CTA's `number` in lane 0 of the first, and in all lanes of the second one. `before`
// counts the numbers that were agreed on. A whole warp of each CTA calls it.
__device__ __forceinline__ int agree_on_number(PairNumbers& numbers, uint32_t before, int number, int lane) {
  const uint32_t slot = before % PairNumbers::kSlots, parity = before / PairNumbers::kSlots % 2;
  if (cluster_ctarank() == 0) {
    mbarrier_wait(numbers.empty[slot], parity ^ 1);
    if (lane == 0) store_at(numbers.number[slot], number, numbers.full[slot], 1);
  } else {
    if (lane == 0) mbarrier_arrive_expect_tx(numbers.full[slot], sizeof(int32_t));
    mbarrier_wait(numbers.full[slot], parity);
    number = numbers.number[slot];
    __syncwarp();
    if (lane == 0) mbarrier_arrive_at(numbers.empty[slot], 0);
  }
  __syncwarp();
  return number;
}

// ---- host ------------------------------------------------------------------------------------------------

inline cudaLaunchAttribute launch_in_pairs() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  return attribute;
}

// The pairs that are resident together, at least 1: a GPC with an odd number of SMs leaves one idle.
// `config` has attributes of launch_in_pairs().
template <class Kernel>
int resident_pairs(Kernel* kernel, const cudaLaunchConfig_t& config) {
  int clusters = 0;
  LONGSPAN_CUDA(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  return std::max(clusters, 1);
}

}  // namespace longspan::sm90
