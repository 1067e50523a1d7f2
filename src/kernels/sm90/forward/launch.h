// Launches the forward kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/forward/planner/shape.h"
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
};

// Of a call: ForwardParams::next_item.
inline constexpr size_t kForwardWorkspaceBytes = 256;

// Queues the kernel on `stream`. The problem must satisfy Sm90Kernel::supports, and `map` must be its map at
// shape.tile_shape(). Throws longspan::Error if no instance has this shape.
void launch_forward(const Problem& problem, const ForwardShape& shape, const DeviceForwardMap& map,
                    const ForwardArgs& args, const Device& device, cudaStream_t stream);

}  // namespace longspan::sm90
