// Helpers for GPU tests of kernels: a problem with given masks, and a check for a Hopper GPU.
#pragma once

#include <memory>
#include <utility>

#include "attention/problem.h"
#include "gpu/gpu.h"

// Skips the test, with the reason, unless there is a Hopper GPU.
#define LONGSPAN_NEEDS_HOPPER() \
  LONGSPAN_NEEDS_GPU();         \
  if (first_gpu().capability != 90) GTEST_SKIP() << "needs compute capability 9.0"

namespace longspan {

inline Problem problem_of(HeadMasks masks, int64_t heads_q, int64_t heads_kv, int64_t head_dim = 128,
                          DType dtype = DType::kBF16) {
  Problem p;
  p.tokens_q = masks.front().rows();
  p.tokens_kv = masks.front().columns();
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.head_dim = head_dim;
  p.dtype = dtype;
  p.masks = std::make_shared<const HeadMasks>(std::move(masks));
  return p;
}

}  // namespace longspan
