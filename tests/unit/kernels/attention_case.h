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
  TensorView q() const { return view(q_, problem_.tokens_q, problem_.heads_q, problem_.dtype); }
  TensorView k() const { return view(k_, problem_.tokens_kv, problem_.heads_kv, problem_.dtype); }
  TensorView v() const { return view(v_, problem_.tokens_kv, problem_.heads_kv, problem_.dtype); }
  TensorView dout() const { return view(dout_, problem_.tokens_q, problem_.heads_q, problem_.dtype); }

  // Runs forward, then backward from the kernel's own o and lse. All memory passed to the plan is filled with
  // NaN first.
  AttentionOutputs run(Plan& plan) const;
  AttentionOutputs run(const Kernel& kernel) const;
  AttentionOutputs brute_force() const;

 private:
  TensorView view(const Buffer& buffer, int64_t tokens, int64_t heads, DType dtype) const {
    return TensorView::contiguous(buffer.data(), dtype, tokens, heads, problem_.head_dim);
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
