// The backward pass of one problem: its tile map, its workspace, its three steps.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/sm90/backward_shape.h"
#include "kernels/sm90/backward_turns.h"
#include "kernels/sm90/uploaded_map.h"

namespace longspan::sm90 {

class BackwardPlan {
 public:
  // Requires what Sm90Kernel::supports checks.
  BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device);

  size_t workspace_bytes() const { return workspace_bytes_; }
  size_t bytes() const { return map_.bytes() + turns_.bytes(); }
  void run(const BackwardArgs& args, cudaStream_t stream);

 private:
  BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device,
               const CompiledMap& map);
  int64_t workers() const;  // that take items
  int32_t section_units() const;
  int32_t last_section() const;

  Problem problem_;
  BackwardShape shape_;
  Device device_;
  UploadedMap map_;
  Buffer turns_;  // BackwardStore::kOrdered: BackwardTurns::first, then its turns
  size_t first_turns_ = 0;
  bool descending_ = false;
  int32_t row_tiles_ = 0;
  size_t dq_ = 0, dkv_ = 0, turn_ = 0, turn_bytes_ = 0;  // offsets into the workspace; stats come first
  size_t workspace_bytes_ = 0;
};

}  // namespace longspan::sm90
