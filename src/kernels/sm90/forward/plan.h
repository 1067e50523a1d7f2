// The forward pass of one problem: its shape and its tile map on the GPU, and the launch of the kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/gpu/device_pack.h"
#include "kernels/sm90/forward/params.h"
#include "kernels/sm90/forward/planner/shape.h"

namespace longspan::sm90 {

// Of a call: ForwardParams::next_item.
inline constexpr size_t kForwardWorkspaceBytes = 256;

// Queues the kernel on `stream`. The problem must satisfy Sm90Kernel::supports. `planned` has its map at
// shape.tile_shape() and the order of work; the other parameters come from the arguments. Throws
// longspan::Error if no instance has this shape.
void launch_forward(const Problem& problem, const ForwardShape& shape, const ForwardParams& planned,
                    const ForwardArgs& args, const Device& device, cudaStream_t stream);

// The same above head_dim 128, with all parameters.
void start_large_forward(const Problem& problem, const ForwardShape& shape, ForwardParams& params,
                         const Device& device, cudaStream_t stream);

class ForwardPlan {
 public:
  ForwardPlan(const Problem& problem, const ForwardShape& shape, const Device& device);
  ForwardPlan(const Problem& problem, const Device& device)
      : ForwardPlan(problem, choose_forward_shape(problem, device), device) {}
  size_t bytes() const { return pack_.bytes(); }
  size_t workspace_bytes() const { return kForwardWorkspaceBytes; }
  void run(const Problem& problem, const ForwardArgs& args, const Device& device, Stream stream);

 private:
  ForwardShape shape_;
  gpu::DevicePack pack_;
  ForwardParams params_;  // the map and the order of work
};

}  // namespace longspan::sm90
