// Starts the backward kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "base/device.h"
#include "base/dtype.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {

// Queues the kernel on `stream`. Where its blocks wait for others that may begin later (a schedule, additions
// that wait for their turns), all of them begin together or none does, and the launch throws kUnsupported
// where this process may use fewer multiprocessors than device.units. Where some of its blocks do passes, one
// more than params.pass_ctas must have room beside each other at some time: a part of a GPU with fewer
// multiprocessors than that (a green context), of which CUDA's runtime says nothing, never ends.
void launch_backward(int64_t head_dim, DType dtype, const BackwardShape& shape, const BackwardParams& params,
                     const Device& device, cudaStream_t stream);

}  // namespace longspan::sm90
