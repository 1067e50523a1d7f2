// Kernels of a row that begin while the one before still runs, as its blocks leave room: what they do before
// griddepcontrol_wait() takes place beside it, and launching takes no time of its own. CUDA Programming
// Guide, "Programmatic Dependent Launch and Synchronization".
#pragma once

#include <utility>

#include "base/cuda/cuda_check.h"

namespace longspan::sm90 {

// Lets the next kernel's blocks be launched as soon as all of this one's have said so, or are done.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Until the kernel before is done and memory has what it wrote. Each thread that reads or overwrites
// something of it comes to this, or meets one that has. Where the launch was an ordinary one, it is so
// already.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

inline cudaLaunchAttribute dependent_launch() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// As kernel<<<blocks, threads, 0, stream>>>(args...); the kernel has to come to griddepcontrol_wait().
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
