// The forward pass of one problem: its shape and its tile map on the GPU.
#pragma once

#include "attention/kernel.h"
#include "kernels/gpu/device_pack.h"
#include "kernels/sm90/forward/launch.h"
#include "kernels/sm90/forward/planner/shape.h"

namespace longspan::sm90 {

class ForwardPlan {
 public:
  ForwardPlan(const Problem& problem, const ForwardShape& shape, const Device& device);
  ForwardPlan(const Problem& problem, const Device& device)
      : ForwardPlan(problem, choose_forward_shape(problem), device) {}
  size_t bytes() const { return pack_.bytes(); }
  size_t workspace_bytes() const { return kForwardWorkspaceBytes; }
  void run(const Problem& problem, const ForwardArgs& args, const Device& device, Stream stream);

 private:
  ForwardShape shape_;
  gpu::DevicePack pack_;
  ForwardParams params_;  // the map and the order of work
};

}  // namespace longspan::sm90
