// Small single-threaded matrix products of a shape known in advance. LIBXSMM compiles each shape at run time,
// where the build has it and it supports the CPU; OpenBLAS otherwise.
#pragma once

#include <cstdint>

namespace longspan {

enum class GemmLibrary : uint8_t { kXsmm, kBlas };

// Whether the library can run products in this build on this machine.
bool available(GemmLibrary library);

// LIBXSMM where available: at the sizes of attention tiles it is 1.2 to 1.6 times as fast as OpenBLAS, which
// repacks both operands in every call.
GemmLibrary preferred_gemm_library();

// All matrices are f32 and row-major; strides are in elements.
struct GemmShape {
  int32_t rows = 0, columns = 0, depth = 0;
  int32_t left_stride = 0, right_stride = 0, out_stride = 0;
  bool accumulate = false;  // add to what `out` holds
};

// out[rows, columns] = left[rows, depth] * right[depth, columns]. Copyable and thread-safe. The same operands
// always give the same bits.
class SmallGemm {
 public:
  SmallGemm() = default;
  SmallGemm(const GemmShape& shape, GemmLibrary library);

  void operator()(const float* left, const float* right, float* out) const {
    if (compiled_ != nullptr) {
      compiled_(right, left, out);  // LIBXSMM is column-major: compute the product of the transposed matrices
    } else {
      by_blas(left, right, out);
    }
  }

 private:
  void by_blas(const float* left, const float* right, float* out) const;

  GemmShape shape_;
  void (*compiled_)(const float* a, const float* b, float* c, ...) = nullptr;
};

}  // namespace longspan
