// Matrix products by cuBLAS in every dtype and layout.
#include "base/cuda/cublas.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "gpu/gpu.h"

namespace longspan {
namespace {

using cuda::Blas;
using cuda::Matrix;

class CublasTest : public testing::TestWithParam<DType> {};

// Small integers, so that every dtype must give the exact product.
TEST_P(CublasTest, MultipliesRowMajorMatricesInEveryTransposition) {
  LONGSPAN_NEEDS_GPU();
  if (!Blas::unavailable_reason().empty()) GTEST_SKIP() << Blas::unavailable_reason();
  const DType dtype = GetParam();
  const Device gpu = first_gpu();
  Blas blas(gpu);
  const int64_t m = 9, n = 5, k = 17, batch = 3, padding = 2;

  const auto value = [](int64_t i) { return static_cast<float>((i * 7 + i / 3) % 9 - 4); };
  const auto upload = [&](int64_t count, DType type) {
    std::vector<char> host(static_cast<size_t>(count) * size_of(type));
    for (int64_t i = 0; i < count; ++i) {
      char* at = host.data() + static_cast<size_t>(i) * size_of(type);
      if (type == DType::kF32) *reinterpret_cast<float*>(at) = value(i);
      if (type == DType::kF64) *reinterpret_cast<double*>(at) = value(i);
      if (type == DType::kBF16) *reinterpret_cast<bf16*>(at) = to_bf16(value(i));
      if (type == DType::kF16) *reinterpret_cast<f16*>(at) = to_f16(value(i));
    }
    Buffer buffer(host.size(), gpu);
    copy_bytes(buffer.data(), DeviceKind::kCuda, host.data(), DeviceKind::kCpu, host.size());
    return buffer;
  };
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      // Stored [rows, columns + padding]; b is the same for the whole batch.
      const int64_t a_rows = a_transposed ? k : m, a_columns = a_transposed ? m : k;
      const int64_t b_rows = b_transposed ? n : k, b_columns = b_transposed ? k : n;
      const int64_t lda = a_columns + padding, ldb = b_columns + padding, ldc = n + padding;
      const Buffer a = upload(batch * a_rows * lda, dtype), b = upload(b_rows * ldb, dtype);
      const DType c_type = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
      const Buffer c = upload(batch * m * ldc, c_type);
      blas.product({.data = c.data(),
                    .dtype = c_type,
                    .rows = m,
                    .columns = n,
                    .row_stride = ldc,
                    .batch_stride = m * ldc},
                   {.data = a.data(),
                    .dtype = dtype,
                    .rows = a_rows,
                    .columns = a_columns,
                    .row_stride = lda,
                    .batch_stride = a_rows * lda,
                    .transposed = a_transposed},
                   {.data = b.data(),
                    .dtype = dtype,
                    .rows = b_rows,
                    .columns = b_columns,
                    .row_stride = ldb,
                    .batch_stride = 0,
                    .transposed = b_transposed},
                   2, 3, batch, Stream{});
      std::vector<char> host(c.bytes());
      copy_bytes(host.data(), DeviceKind::kCpu, c.data(), DeviceKind::kCuda, host.size());
      for (int64_t i = 0; i < batch * m * ldc; ++i) {
        const double got = c_type == DType::kF64 ? reinterpret_cast<const double*>(host.data())[i]
                                                 : reinterpret_cast<const float*>(host.data())[i];
        const int64_t row = i / ldc % m, column = i % ldc, number = i / (m * ldc);
        double expected = value(i);
        if (column < n) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            const int64_t a_at = a_transposed ? l * lda + row : row * lda + l;
            const int64_t b_at = b_transposed ? column * ldb + l : l * ldb + column;
            sum += static_cast<double>(value(number * a_rows * lda + a_at)) * value(b_at);
          }
          expected = 2 * sum + 3 * value(i);
        }
        ASSERT_EQ(got, expected) << "element " << i << (a_transposed ? " a'" : " a")
                                 << (b_transposed ? " b'" : " b");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CublasTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace longspan
