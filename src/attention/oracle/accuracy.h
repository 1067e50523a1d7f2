// The error of a kernel's output and its tolerance, both derived in docs/concepts/proof.md.
#pragma once

#include <cstdint>
#include <string>

#include "attention/oracle/oracle.h"

namespace longspan {

// The check of one tensor. A row's error is the norm of its difference from the true row, divided by the
// row's magnitude; the error of lse is the plain difference. The reported row is the worst relative to its
// tolerance.
struct TensorAccuracy {
  std::string tensor;    // "o", "lse", "dq", "dk", "dv"
  double error = 0;      // of the worst row; infinite for NaN and the like
  double tolerance = 0;  // of the same row
  double relative = 0;   // norm of all differences over norm of all true rows; informative, not a criterion
  int64_t rows = 0;      // number of rows compared
  std::string failure;   // what is wrong and where; empty if the tensor passed
};

// Half the distance from 1 to the next number: the largest relative error of one rounding.
double unit_roundoff(DType dtype);

// `actual` is in host memory; places[head] lists the rows in the order of the reference.
TensorAccuracy compare_rows(const Problem& problem, const std::string& tensor, const TensorView& actual,
                            const ReferenceRows& reference, const std::vector<std::vector<int64_t>>& places);

// `drift_keys` is PlanNotes::drift_keys of the plan.
TensorAccuracy compare_lse(const Problem& problem, const float* actual, const ForwardReference& reference,
                           const std::vector<std::vector<int64_t>>& rows, int64_t drift_keys = 0);

// Checks of every element, not only of sampled rows. They return "" or what is wrong and where.
// Every element must be finite, and rows whose visible-pair count is 0 in every mask must be zero.
using HeadCounts = std::vector<std::vector<int64_t>>;  // [masks][rows or keys]
std::string check_elements(const std::string& tensor, const TensorView& actual, const HeadCounts& counts);
// lse must be finite where the row sees a key or a sink, and -inf elsewhere.
std::string check_lse_elements(const float* actual, int64_t heads, int64_t tokens, const HeadCounts& counts,
                               bool sinks = false);

}  // namespace longspan
