// Starts the forward kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/sm90/forward_shape.h"
#include "kernels/sm90/uploaded_map.h"

namespace longspan::sm90 {

// Requires what Sm90Kernel::supports checks, and the map of this problem at shape.tile_shape().
void launch_forward(const Problem& problem, const ForwardShape& shape, const DeviceMap& map,
                    const ForwardArgs& args, const Device& device, cudaStream_t stream);

}  // namespace longspan::sm90
