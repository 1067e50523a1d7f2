// More dynamic shared memory than the default of 48 KiB, which a kernel must be granted once on each device.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/cuda/cuda_check.h"

namespace longspan::gpu {

// One a kernel, static: each call of the driver that is left out shortens a launch by a microsecond.
class SharedMemoryGrant {
 public:
  // On the current device.
  template <class Function>
  void allow(Function* kernel, int bytes) {
    int device = 0;
    LONGSPAN_CUDA(cudaGetDevice(&device));
    const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
    if ((granted_.load(std::memory_order_relaxed) & bit) != 0) return;
    LONGSPAN_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    granted_.fetch_or(bit, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> granted_ = 0;  // a bit for each device
};

}  // namespace longspan::gpu
