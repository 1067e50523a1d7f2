// A small attention problem with its inputs, the results of kernels, and the true result (brute force in
// f64).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"

namespace longspan {

// All outputs, widened to f32; for the brute force, rounded to it.
struct AttentionOutputs {
  std::vector<float> o, lse, dq, dk, dv;
  bool same_bits(const AttentionOutputs& other) const;
};

class AttentionCase {
 public:
  // Draws q, k, v, dout and, with Problem::lse_gradient, dlse from a normal distribution; scales q, k, v by
  // `magnitude`.
  explicit AttentionCase(const Problem& problem, float magnitude = 1, uint64_t seed = 1);

  const Problem& problem() const { return problem_; }
  TensorView q() const { return rows(q_, problem_.head_dim, problem_.dtype); }
  TensorView k() const { return keys(k_, problem_.head_dim, problem_.dtype); }
  TensorView v() const { return keys(v_, problem_.dim_v(), problem_.dtype); }
  TensorView dout() const { return rows(dout_, problem_.dim_v(), problem_.dtype); }

  // Runs forward, then backward from the kernel's own o and lse. All memory passed to the plan is filled with
  // NaN first.
  AttentionOutputs run(Plan& plan) const;
  AttentionOutputs run(const Kernel& kernel) const;
  AttentionOutputs brute_force() const;

 private:
  TensorView rows(const Buffer& buffer, int64_t head_dim, DType dtype) const {
    return TensorView::contiguous(buffer.data(), dtype, problem_.tokens_q, problem_.heads_q, head_dim);
  }
  TensorView keys(const Buffer& buffer, int64_t head_dim, DType dtype) const {
    return TensorView::contiguous(buffer.data(), dtype, problem_.tokens_kv, problem_.heads_kv, head_dim);
  }

  Problem problem_;
  Buffer q_, k_, v_, dout_;
  Buffer dlse_;  // [heads_q, tokens_q], f32
};

// The largest difference, relative to the largest true value (at least `floor`); infinite if only one is NaN
// or if infinities differ.
double relative_error(const std::vector<float>& got, const std::vector<float>& truth, double floor = 0.1);

// A problem with one mask for all heads.
Problem make_problem(const Mask& mask, int64_t heads_q, int64_t heads_kv, int64_t head_dim,
                     DType dtype = DType::kF32);

}  // namespace longspan
