// Starts the backward kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "base/device.h"
#include "base/dtype.h"
#include "kernels/sm90/backward_params.h"
#include "kernels/sm90/backward_shape.h"

namespace longspan::sm90 {

void launch_backward(int64_t head_dim, DType dtype, const BackwardShape& shape, const BackwardParams& params,
                     const Device& device, cudaStream_t stream);

}  // namespace longspan::sm90
