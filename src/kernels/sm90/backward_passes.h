// The passes before and after the backward kernel: they read and write each element once, and wait for
// memory.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/kernel.h"

namespace longspan::sm90 {

// The parts of the backward pass' workspace.
struct BackwardWorkspace {
  float* stats = nullptr;  // [heads_q, row_tiles, 2, rows]: -lse * log2(e), then delta
  float* dq = nullptr;     // [heads_q, row_tiles, rows * head_dim], in the kernel's order
  float* dkv = nullptr;    // [heads_kv, key_tiles, 2, keys * head_dim], likewise; null where it is not needed
  int32_t* turn = nullptr;  // [heads_q, row_tiles, 2], then [heads_kv, key_tiles, 2]; null if not needed
  size_t turn_bytes = 0;
  bool claimed = false;  // the first addition stores: dq needs no zeros, and has no sums where turn is 0
  bool transposed_dq = true;
  int32_t dq_columns = 0;  // queries of one of the products that make dq^T: BackwardShape::dq_columns
  int32_t rows = 0, row_tiles = 0, keys = 0, key_tiles = 0;
};

// stats, with delta = rowsum(do o); and zeros in dkv, turn and, unless it is claimed, dq. Rows that see no
// key, and those past the last, get -infinity, which makes their probabilities zero.
void prepare_backward(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                      cudaStream_t stream);

// Sums in fp32 to dq, scaled, and where there is dkv, to dk and dv.
void finish_backward(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                     cudaStream_t stream);

}  // namespace longspan::sm90
