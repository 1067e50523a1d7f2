// The backward pass of one problem: its tile map, its workspace and its three steps.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/gpu/device_pack.h"
#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/backward/planner/walk.h"

namespace longspan::sm90 {

class BackwardPlan {
 public:
  // The problem must satisfy Sm90Kernel::supports.
  BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device);

  size_t workspace_bytes() const { return workspace_bytes_; }
  size_t bytes() const { return pack_.bytes(); }
  void run(const BackwardArgs& args, cudaStream_t stream);

 private:
  void lay_out_workspace(bool shared);

  Problem problem_;
  BackwardShape shape_;
  Device device_;
  gpu::DevicePack pack_;
  size_t work_ = 0, key_tile_ = 0, row_tile_ = 0, runs_ = 0, partials_ = 0, spans_ = 0;  // offsets in pack_
  size_t turns_ = 0, next_item_ = 0;
  uint32_t turns_of_head_ = 0;
  int32_t streams_ = 0;  // of the BackwardSchedule; 0: there is none
  BackwardWalk walk_;
  int32_t row_tiles_ = 0, key_tiles_ = 0, items_per_head_ = 0, mask_items_ = 0, last_list_ = 0;
  int32_t section_heads_ = 1, last_section_ = 0, pass_ctas_ = 0;
  // Offsets in the workspace; stats come first.
  size_t counters_ = 0, dq_ = 0, dkv_ = 0, turn_ = 0, front_ = 0, parts_ = 0;
  size_t workspace_bytes_ = 0;
};

}  // namespace longspan::sm90
