// Instances of the forward kernel above head_dim 128, compiled by themselves.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/problem.h"
#include "kernels/sm90/forward/params.h"
#include "kernels/sm90/forward/planner/shape.h"

namespace longspan::sm90 {

// Throws longspan::Error if no instance has this shape.
void start_large_forward(const Problem& problem, const ForwardShape& shape, ForwardParams& params,
                         const Device& device, cudaStream_t stream);

}  // namespace longspan::sm90
