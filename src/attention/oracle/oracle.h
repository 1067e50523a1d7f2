// The fp64 oracle: attention by its definition for chosen rows and keys, at any sequence length.
//
// A row of o costs O(visible keys * head_dim), and so does a row of dq once lse and o of that row are known.
// A key's dk and dv need lse and delta of every row that sees it: the oracle takes o and lse as the backward
// pass gets them, and so computes the backward pass as the function of (q, k, v, o, lse, dout) that it is.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/oracle/oracle_samples.h"
#include "attention/problem.h"
#include "base/device.h"
#include "base/tensor.h"

namespace longspan {

// Of any dtype: the oracle starts from the rounded values that the kernel got.
struct OracleInputs {
  DeviceKind kind = DeviceKind::kCpu;  // where the tensors and lse lie; the oracle computes there
  TensorView q, k, v;                  // [tokens, heads, head_dim]
  TensorView o, dout;                  // [tokens_q, heads_q, head_dim]; backward only
  const float* lse = nullptr;          // [heads_q, tokens_q]; backward only
};

// True rows of one tensor, and how large rounding errors naturally are in each.
//
// An error that rounds each term of a row's sum independently, by a relative u, has about the norm u *
// spread, with spread^2 = sum of the terms' squared norms. Where a term is itself a difference, ds = p (dp -
// delta), what was cancelled rounds too: `cancelled` is the same sum for the magnitudes before the
// cancellation.
struct ReferenceRows {
  std::vector<double> values;     // [rows, head_dim]
  std::vector<double> spread;     // [rows]
  std::vector<double> cancelled;  // [rows]; 0 where nothing is cancelled
  std::vector<double>
      operands;               // [rows]: sqrt of the sum of squared norms of the rows summed over, unweighted
  std::vector<double> terms;  // [rows]: how many terms were summed
};

// Rows in the order of samples.rows, head by head; lse likewise.
struct ForwardReference {
  ReferenceRows o;
  std::vector<double> lse;      // [rows]; -inf for a row without keys
  std::vector<double> largest;  // [rows]: the row's largest scaled score
};
// Whether the oracle can compute in the memory of such a device. If not, copy the tensors to the host for it.
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
