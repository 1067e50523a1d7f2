// The fp64 oracle: attention by its definition, for chosen rows and keys at any sequence length.
//
// A row of o costs O(visible keys * head_dim), and so does a row of dq once lse and o of the row are known. A
// key's dk and dv need lse and delta of every row that sees it. The oracle takes o and lse as inputs, as a
// backward kernel does: it computes the backward pass as a function of (q, k, v, o, lse, dout, dlse).
#pragma once

#include <cstdint>
#include <vector>

#include "attention/oracle/oracle_samples.h"
#include "attention/problem.h"
#include "longspan/base.h"

namespace longspan {

// Inputs of any dtype: the oracle starts from the rounded values that the kernel received.
struct OracleInputs {
  DeviceKind kind = DeviceKind::kCpu;  // device of the tensors and lse; the oracle computes there
  TensorView q, k, v;                  // [tokens, heads, head_dim]; v: head_dim_v
  TensorView o, dout;                  // [tokens_q, heads_q, head_dim_v]; backward only
  const float* lse = nullptr;          // [heads_q, tokens_q]; backward only
  const float* dlse = nullptr;         // [heads_q, tokens_q], as in BackwardArgs; may be null
};

// True rows of one tensor, and the natural size of rounding errors in each.
//
// Independent relative roundings u of the terms of a row's sum give an error with a norm of about u * spread,
// where spread^2 is the sum of the terms' squared norms. A term may itself be a difference, ds = p (dp -
// delta), whose operands round too: `cancelled` is the same sum over the magnitudes before cancellation.
struct ReferenceRows {
  std::vector<double> values;     // [rows, head_dim]
  std::vector<double> spread;     // [rows]
  std::vector<double> cancelled;  // [rows]; 0 without cancellation
  // [rows]: what an error of 1 in each weight does to the row. ds = p (dp - delta) has two, its own and p's,
  // which counts abs(dp - delta) times.
  std::vector<double> operands;
  std::vector<double> terms;  // [rows]: number of terms in the sum
  // [rows]: what errors of the scores do to the row, if each is one score_error(). exp() turns an error e of
  // a score into a relative error e of its weight.
  std::vector<double> scores;
};

// The error of a scaled product scale * sum of q k in f32, for `magnitude` = abs(scale) * sum of abs(q k).
// The bound of a sum added one by one is head_dim * 2^-24 * magnitude (Higham, Accuracy and Stability of
// Numerical Algorithms, 3.1). Its roundings are independent: if all products have one sign, the error is 0.24
// sqrt(head_dim) 2^-24 of the magnitude, root mean square. This is twice that. The oracle's own error, in
// f64, is smaller by 2^-29 sqrt(head_dim) at most.
double score_error(double magnitude, int64_t head_dim);

// Above this error of a score, exp() leaves no digit of its weight.
inline constexpr double kMostScoreError = 0.125;

// Rows in the order of samples.rows, head by head; likewise lse.
struct ForwardReference {
  ReferenceRows o;
  std::vector<double> lse;         // [rows]; -inf for a row without keys
  std::vector<double> largest;     // [rows]: the largest score of the row
  std::vector<double> lse_scores;  // [rows]: what errors of the scores do to lse
  double score_error = 0;          // the largest of all
};

// Whether the oracle can run in the memory of this device. If not, copy the tensors to the host. On a GPU it
// has no softcap and no ALiBi, and leaves out the errors of scores: at a scale up to kOrdinaryScale /
// sqrt(head_dim) other roundings are larger.
inline constexpr float kOrdinaryScale = 2;
bool oracle_reads(DeviceKind kind, const Problem& problem);

ForwardReference reference_forward(const Problem& problem, const OracleInputs& inputs,
                                   const Samples& samples);

struct BackwardReference {
  ReferenceRows dq;      // in the order of samples.rows
  ReferenceRows dk, dv;  // in the order of samples.keys
};
BackwardReference reference_backward(const Problem& problem, const OracleInputs& inputs,
                                     const Samples& samples);

}  // namespace longspan
