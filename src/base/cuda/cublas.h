// Matrix products on a GPU through cuBLAS. The library is opened on first use, so the program starts without
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "base/dtype.h"
#include "longspan/base.h"

namespace longspan::cuda {

// A row-major matrix in device memory, or a batch of them at a constant distance (0: the same matrix each
// time).
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0;  // in elements, like batch_stride
  int64_t batch_stride = 0;
  bool transposed = false;  // use the transpose; rows and columns describe the matrix as stored
};

inline Matrix transpose(Matrix matrix) {
  matrix.transposed = !matrix.transposed;
  return matrix;
}

// cuBLAS on one device. Not thread-safe.
class Blas {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32}
                                            << 20;  // held by each Blas; what cuBLAS asks for on Hopper

  // Why cuBLAS cannot be used ("libcublas.so.13 was not found: ..."); empty if it can.
  static std::string unavailable_reason();
  static std::string version();  // "13.0.2"; empty if cuBLAS was not found

  explicit Blas(const Device& device);  // throws an input error with unavailable_reason()
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // c = alpha * a b + beta * c for each of `batch` matrices. a and b share a dtype; c has that dtype or f32.
  // Accumulation is in f32 (f64 for f64), and f32 inputs are not rounded to tf32.
  void product(const Matrix& c, const Matrix& a, const Matrix& b, double alpha, double beta, int64_t batch,
               Stream stream);

 private:
  void* handle_ = nullptr;
  Buffer workspace_;  // allocated here so that memory accounts include it
};

}  // namespace longspan::cuda
