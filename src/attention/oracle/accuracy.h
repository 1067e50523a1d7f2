// How wrong a kernel's output is, and how wrong it may be. docs/concepts/proof.md derives both.
#pragma once

#include <cstdint>
#include <string>

#include "attention/oracle/oracle.h"

namespace longspan {

// What was found of one tensor. The error of a row is the norm of its difference from the true row, over the
// row's magnitude; that of lse is the plain difference. Reported is the row nearest to, or furthest above,
// its tolerance.
struct TensorAccuracy {
  std::string tensor;    // "o", "lse", "dq", "dk", "dv"
  double error = 0;      // of the worst row; infinite for NaN and the like
  double tolerance = 0;  // of that row
  double relative = 0;   // norm of all differences over norm of all true rows: to be read, not a criterion
  int64_t rows = 0;      // compared
  std::string failure;   // what is wrong and where; empty if nothing is
};

// Half the distance from 1 to the next number: the largest relative error of one rounding.
double unit_roundoff(DType dtype);

// `actual` is in the host's memory; places[head] lists the rows in the order of the reference.
TensorAccuracy compare_rows(const Problem& problem, const std::string& tensor, const TensorView& actual,
                            const ReferenceRows& reference, const std::vector<std::vector<int64_t>>& places);

// `drift_keys`: of the kernel's PlanNotes.
TensorAccuracy compare_lse(const Problem& problem, const float* actual, const ForwardReference& reference,
                           const std::vector<std::vector<int64_t>>& rows, int64_t drift_keys = 0);

// Checks of every element, not only of sampled rows; "" or what is wrong and where.
// Finite everywhere, and zero in the rows (of every head's mask) whose count of visible pairs is zero.
using HeadCounts = std::vector<std::vector<int64_t>>;  // [masks][rows or keys]
std::string check_elements(const std::string& tensor, const TensorView& actual, const HeadCounts& counts);
// Finite where the row sees a key, -inf where it sees none.
std::string check_lse_elements(const float* actual, int64_t heads, int64_t tokens, const HeadCounts& counts);

}  // namespace longspan
