// Launches the forward kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/forward/planner/shape.h"
#include "kernels/sm90/forward/planner/split.h"
#include "kernels/sm90/forward/planner/work_order.h"

namespace longspan::sm90 {

// A ForwardMap in device memory.
struct DeviceForwardMap {
  const MapRow* work = nullptr;
  const MapEntry* entries = nullptr;
  const uint32_t* spans = nullptr;
  const uint8_t* plan = nullptr;  // all of the above
  size_t plan_bytes = 0;
  WorkOrder order;
  int32_t rows_per_tile = 0;

  // Paired shapes only: resident CTA pairs, and the split of the last wave.
  int32_t workers = 0;
  const ItemPart* parts = nullptr;
  int32_t whole_items = 0, parts_count = 0;
};

// Where ForwardParams' members of these names lie in a call's workspace, in bytes. Zeros come first, and
// next_item before all.
struct ForwardWorkspace {
  size_t next_item = 0, arrived = 0, zeros_bytes = 0;
  size_t scratch_rows = 0, scratch_o = 0;
  size_t bytes = 0;
};

// How many clusters of two CTAs are resident on the device at a time.
int32_t pairs_at_a_time(const Device& device);

// Queues the kernel on `stream`. The problem must satisfy Sm90Kernel::supports, and `map` must be its map at
// shape.tile_shape(). Throws longspan::Error if no instance has this shape.
void launch_forward(const Problem& problem, const ForwardShape& shape, const DeviceForwardMap& map,
                    const ForwardWorkspace& workspace, const ForwardArgs& args, const Device& device,
                    cudaStream_t stream);

}  // namespace longspan::sm90
