// Programmatic dependent launch: a kernel begins while the one before still runs, as its CTAs leave room.
// Work ahead of griddepcontrol_wait() overlaps, and the launch takes no time of its own. See the CUDA
// Programming Guide, "Programmatic Dependent Launch and Synchronization".
#pragma once

#include <utility>

#include "base/cuda/cuda_check.h"

namespace longspan::sm90 {

// Lets the next kernel's CTAs launch once all CTAs of this kernel have called it or are done.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel before is done and its writes are visible. Every thread that reads or overwrites
// them has to call it, or synchronize with one that did. Returns at once in an ordinary launch.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

inline cudaLaunchAttribute dependent_launch() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Like kernel<<<blocks, threads, 0, stream>>>(args...). The kernel has to call griddepcontrol_wait().
template <class... Parameters, class... Args>
void launch_dependent(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
                      Args&&... args) {
  cudaLaunchAttribute attribute = dependent_launch();
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  LONGSPAN_CUDA(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace longspan::sm90
