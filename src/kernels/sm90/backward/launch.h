// Launches the backward kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/problem.h"
#include "base/dtype.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "longspan/base.h"

namespace longspan::sm90 {

// Queues the kernel on `stream`. Throws longspan::Error if no instance has this shape. If CTAs wait for
// others that may begin later (a schedule, or turns), the launch is cooperative, and it throws kUnsupported
// if this process may use fewer SMs than device.units. If CTAs do passes, at least params.pass_ctas + 1 CTAs
// must be resident at some time. In a green context with fewer SMs than that, which the CUDA runtime does not
// report, the kernel never ends.
void launch_backward(int64_t head_dim, DType dtype, const BackwardShape& shape, const BackwardParams& params,
                     const Device& device, cudaStream_t stream);

// The same for shapes with `large`.
void launch_large_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                           const Device& device, cudaStream_t stream);

}  // namespace longspan::sm90
