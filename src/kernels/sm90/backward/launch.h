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

// The backward pass' workspace, and its tiles.
struct BackwardWorkspace {
  float* stats = nullptr;                 // [heads_q, row_tiles, 2, rows]: -lse * log2(e), then delta
  float* dq = nullptr;                    // as BackwardParams::dq
  int32_t* turn = nullptr;                // [heads_q, row_tiles, shares]; null if not needed
  int32_t shares = 2;                     // of a tile's dq
  bool in_rows = false;                   // dq's sums lie in rows (layout.h); else as threads hold them
  const TileExtent* row_tile = nullptr;   // [masks, row_tiles]
  const uint8_t* visited_once = nullptr;  // [masks, row_tiles]; null if not needed
  int32_t masks = 1;
  // Query heads of the passes: the first heads_before, and the last heads_after. CTAs of the backward
  // kernel do the others (planner/pass_ctas.h).
  int32_t heads_before = 0, heads_after = 0;
  struct Counters {
    int32_t* data = nullptr;
    int64_t count = 0;
  } zeros[2];  // set to zero before the kernel
  int32_t rows = 0, row_tiles = 0;
};

// Writes stats, with delta = rowsum(do o) - dlse, and zeros to turn or, without turn, to dq. Rows
// that see no key, and those past the last, get -infinity, which makes their probabilities zero.
void prepare_backward(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                      cudaStream_t stream);

// Scales and rounds the sums of dq, of row tiles that are not visited_once.
void finish_backward(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                     cudaStream_t stream);

}  // namespace longspan::sm90
