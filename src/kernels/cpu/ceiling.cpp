#include "kernels/cpu/ceiling.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <cblas.h>

#include "attention/blas.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/rng.h"

namespace longspan {

SgemmCeiling measure_sgemm_ceiling(int64_t size, double budget_s) {
  LONGSPAN_CHECK(size >= 1 && size <= 1 << 20, "a product of size {}", size);
  const size_t bytes = static_cast<size_t>(size * size) * sizeof(float);
  const Device cpu = cpu_device();
  const Buffer a(bytes, cpu), b(bytes, cpu), c(bytes, cpu);
  fill_normal(TensorView::contiguous(a.data(), DType::kF32, size, 1, size), 1, 0);
  fill_normal(TensorView::contiguous(b.data(), DType::kF32, size, 1, size), 1, 1);
  std::fill_n(c.as<float>(), size * size, 0.0f);

  const BlasThreads threads(thread_count());
  const blasint n = static_cast<blasint>(size);
  const auto seconds_of_product = [&] {
    const auto start = std::chrono::steady_clock::now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0f, a.as<float>(), n, b.as<float>(), n,
                0.0f, c.as<float>(), n);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds_of_product();
  std::vector<double> times;
  double spent = 0;
  while (times.size() < 3 || spent < budget_s) {
    times.push_back(seconds_of_product());
    spent += times.back();
  }
  const std::vector<double> in_order = times;
  std::sort(times.begin(), times.end());
  const double work = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return {work / times.front(), work / times[times.size() / 2], static_cast<int>(times.size()),
          openblas_get_corename(), in_order};
}

double sgemm_ceiling_flops(int64_t size, double budget_s) {
  return measure_sgemm_ceiling(size, budget_s).flops_per_s;
}

}  // namespace longspan
