#include "kernels/cpu/gemm.h"

#include <cblas.h>

#include "attention/blas.h"
#include "base/error.h"

#ifdef LONGSPAN_WITH_XSMM
#include <libxsmm.h>
#endif

namespace longspan {

#ifdef LONGSPAN_WITH_XSMM

static libxsmm_smmfunction compile(const GemmShape& shape) {
  const float alpha = 1, beta = shape.accumulate ? 1 : 0;
  const libxsmm_blasint lda = shape.right_stride, ldb = shape.left_stride, ldc = shape.out_stride;
  return libxsmm_smmdispatch(shape.columns, shape.rows, shape.depth, &lda, &ldb, &ldc, &alpha, &beta, nullptr,
                             nullptr);
}

#endif

bool available(GemmLibrary library) {
  if (library == GemmLibrary::kBlas) return true;
#ifdef LONGSPAN_WITH_XSMM
  // Test a real product, not the CPU's name: a system may also forbid executable memory.
  static const bool compiles = compile({16, 16, 16, 16, 16, 16, false}) != nullptr;
  return compiles;
#else
  return false;
#endif
}

GemmLibrary preferred_gemm_library() {
  return available(GemmLibrary::kXsmm) ? GemmLibrary::kXsmm : GemmLibrary::kBlas;
}

SmallGemm::SmallGemm(const GemmShape& shape, GemmLibrary library) : shape_(shape) {
  LONGSPAN_CHECK(shape.rows > 0 && shape.columns > 0 && shape.depth > 0, "empty product {} x {} x {}",
                 shape.rows, shape.columns, shape.depth);
#ifdef LONGSPAN_WITH_XSMM
  if (library == GemmLibrary::kXsmm) compiled_ = compile(shape);
#endif
  if (compiled_ == nullptr) prepare_blas();
  LONGSPAN_CHECK(compiled_ != nullptr || library == GemmLibrary::kBlas,
                 "LIBXSMM did not compile the product {} x {} x {}", shape.rows, shape.columns, shape.depth);
}

void SmallGemm::by_blas(const float* left, const float* right, float* out) const {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, shape_.rows, shape_.columns, shape_.depth, 1.0f,
              left, shape_.left_stride, right, shape_.right_stride, shape_.accumulate ? 1.0f : 0.0f, out,
              shape_.out_stride);
}

}  // namespace longspan
