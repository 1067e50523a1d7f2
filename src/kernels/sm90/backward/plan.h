// The backward pass of one problem: its tile map, its workspace and its three steps.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/gpu/device_pack.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {

class BackwardPlan {
 public:
  // The problem must satisfy Sm90Kernel::supports.
  BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device);

  size_t workspace_bytes() const { return workspace_bytes_; }
  size_t bytes() const { return pack_.bytes(); }
  void run(const BackwardArgs& args, cudaStream_t stream);

 private:
  void lay_out_workspace(int32_t first_shared);  // the first KV head with key tiles of several items

  Problem problem_;
  BackwardShape shape_;
  Device device_;
  gpu::DevicePack pack_;
  BackwardParams params_;  // all but the tensors and the workspace of a call
  // Offsets in the workspace; stats come first.
  size_t counters_ = 0, dq_ = 0, dkv_ = 0, turn_ = 0, parts_ = 0;
  size_t workspace_bytes_ = 0;
  size_t dkv_skipped_ = 0;  // floats of BackwardParams::dkv that lie before dkv_: of KV heads without sums
};

}  // namespace longspan::sm90
