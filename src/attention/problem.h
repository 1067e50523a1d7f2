// What is to be computed: shapes, types and masks, without data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/tensor.h"
#include "mask/mask.h"

namespace longspan {

enum class Direction : uint8_t { kForward, kBackward };
std::string_view name_of(Direction direction);  // "forward", "backward"
Direction direction_from_name(
    std::string_view);  // also "fwd", "bwd"; throws an input error that lists the names

// One attention: o = softmax(scale * q k^T | mask) v for each query head, whose keys and values are those of
// KV head h / (heads_q / heads_kv). Batch is 1: a batch of sequences is a document mask.
struct Problem {
  int64_t tokens_q = 0, tokens_kv = 0;
  int64_t heads_q = 0, heads_kv = 0;  // heads_q is a multiple of heads_kv
  int64_t head_dim = 0;
  DType dtype = DType::kF32;  // of q, k, v, o and of their gradients
  bool fp32_output = false;   // o (forward), dq, dk, dv (backward) may be f32: partial results to be merged
  bool own_rows = false;  // with fp32_output: o and dq are of dtype all the same, only dk and dv may be f32
  float scale = 0;        // of the scores; 0 stands for 1 / sqrt(head_dim)
  bool deterministic = false;              // the same bits on every run are required, not just preferred
  std::shared_ptr<const HeadMasks> masks;  // one for all heads, or one per KV head; [tokens_q, tokens_kv]

  float softmax_scale() const;
  DType output_dtype() const { return fp32_output ? DType::kF32 : dtype; }
  int64_t group_size() const { return heads_q / heads_kv; }
  int64_t kv_head_of(int64_t head_q) const { return head_q / group_size(); }
  const Mask& mask_of_kv_head(int64_t h) const { return masks->size() == 1 ? masks->front() : (*masks)[h]; }
  const Mask& mask_of_query_head(int64_t h) const { return mask_of_kv_head(kv_head_of(h)); }

  // Visible pairs, summed over query heads.
  int64_t area() const;

  // Throws an input error that names the field, its value and what is allowed.
  void check() const;
};

// Floating-point operations credited: 4 * area * head_dim forward (two products), 2.5 times that backward
// (five). Always of visible pairs, never of work that a kernel chose to do in vain.
double flops(const Problem& problem, Direction direction);

}  // namespace longspan
