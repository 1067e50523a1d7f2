// Launches the kernels of a backward pass. Those before and after the main one read and write each element
// once and are bound by memory.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "longspan/base.h"

namespace longspan::sm90 {

// Queues the main kernel on `stream`. Throws longspan::Error if no instance has this shape. If CTAs wait for
// others that may begin later (a schedule, or turns), the launch is cooperative, and it throws kUnsupported
// if this process may use fewer SMs than device.units. If CTAs do passes, at least params.pass_ctas + 1 CTAs
// must be resident at some time. In a green context with fewer SMs than that, which the CUDA runtime does not
// report, the kernel never ends.
void launch_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                     const Device& device, cudaStream_t stream);

// The same for shapes with `large`.
void launch_large_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                           const Device& device, cudaStream_t stream);

// Writes params.stats, with delta = rowsum(do o) - dlse, and zeros to the counters, parts and turns or,
// without turns, to dq's sums. Rows that see no key, and those past the last, get -infinity, which makes
// their probabilities zero. With pass CTAs, it prepares the first section alone.
void prepare_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                      const BackwardArgs& args, cudaStream_t stream);

// Scales and rounds the sums of dq, of row tiles that are not visited_once. With pass CTAs, of the last
// section alone.
void finish_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                     const BackwardArgs& args, cudaStream_t stream);

}  // namespace longspan::sm90
