// The CPU's peak in practice: the rate of a large matrix product, against which kernels are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longspan {

struct SgemmCeiling {
  double flops_per_s = 0;  // of the fastest product
  double median_flops_per_s = 0;
  int repeats = 0;
  std::string core;  // the CPU whose code OpenBLAS took: an older one where it does not know this one
  std::vector<double> samples_s;  // the time of each product, in the order taken
};

// Multiplies two f32 matrices of size x size with OpenBLAS on thread_count() threads until `budget_s` is
// spent, at least three times after a warm-up. Needs 3 * size^2 * 4 bytes of memory. No other thread may call
// BLAS meanwhile.
SgemmCeiling measure_sgemm_ceiling(int64_t size = 4096, double budget_s = 2.0);

// The best rate, in FLOP/s.
double sgemm_ceiling_flops(int64_t size = 4096, double budget_s = 2.0);

}  // namespace longspan
