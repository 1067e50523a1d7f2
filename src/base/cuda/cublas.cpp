#include "base/cuda/cublas.h"

#include <cublas_v2.h>
#include <dlfcn.h>

#include "base/cuda/cuda.h"
#include "base/error.h"

namespace longspan::cuda {
namespace {

// The functions used from the library. They are looked up by string because macros in cublas_v2.h give some
// of them versioned names.
struct Library {
  std::string reason;  // empty if it was found
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasGetVersion_v2) get_version = nullptr;
  decltype(&cublasGemmEx_64) gemm = nullptr;
  decltype(&cublasGemmStridedBatchedEx_64) batched_gemm = nullptr;
  decltype(&cublasGetStatusName) status_name = nullptr;
};

Library open_library() {
  Library library;
  const std::string file = fmt::format("libcublas.so.{}", CUBLAS_VER_MAJOR);
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
#ifdef LONGSPAN_CUDA_LIBRARY_DIR  // the toolkit of this build, in case the loader does not find it
  if (handle == nullptr)
    handle = dlopen((LONGSPAN_CUDA_LIBRARY_DIR "/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
#endif
  if (handle == nullptr) {
    const char* error = dlerror();
    library.reason = fmt::format("{} was not found; add its folder to LD_LIBRARY_PATH ({})", file,
                                 error == nullptr ? "no further reason" : error);
    return library;
  }
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr) library.reason = fmt::format("{} has no {}", file, name);
  };
  load(library.create, "cublasCreate_v2");
  load(library.destroy, "cublasDestroy_v2");
  load(library.set_stream, "cublasSetStream_v2");
  load(library.set_workspace, "cublasSetWorkspace_v2");
  load(library.get_version, "cublasGetVersion_v2");
  load(library.gemm, "cublasGemmEx_64");
  load(library.batched_gemm, "cublasGemmStridedBatchedEx_64");
  load(library.status_name, "cublasGetStatusName");
  return library;
}

const Library& library() {
  static const Library library = open_library();
  return library;
}

void check(cublasStatus_t status, const char* call) {
  LONGSPAN_CHECK(status == CUBLAS_STATUS_SUCCESS, "{}: {}", call, library().status_name(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF64:
      return CUDA_R_64F;
  }
  LONGSPAN_CHECK(false, "dtype {} is unknown to cuBLAS", static_cast<int>(dtype));
}

// Dimensions after transposition.
int64_t rows_of(const Matrix& m) {
  return m.transposed ? m.columns : m.rows;
}
int64_t columns_of(const Matrix& m) {
  return m.transposed ? m.rows : m.columns;
}

}  // namespace

std::string Blas::unavailable_reason() {
  return library().reason;
}

std::string Blas::version() {
  if (!library().reason.empty()) return "";
  int version = 0;
  if (library().get_version(nullptr, &version) != CUBLAS_STATUS_SUCCESS) {
    version = CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH;
  }
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Blas::Blas(const Device& device) {
  LONGSPAN_CHECK_INPUT(library().reason.empty(), "{}", library().reason);
  const DeviceGuard guard(device.index);
  cublasHandle_t handle = nullptr;
  check(library().create(&handle), "cublasCreate");
  handle_ = handle;
  workspace_ = Buffer(kWorkspaceBytes, device);
}

Blas::~Blas() {
  if (handle_ != nullptr) library().destroy(static_cast<cublasHandle_t>(handle_));
}

void Blas::product(const Matrix& c, const Matrix& a, const Matrix& b, double alpha, double beta,
                   int64_t batch, Stream stream) {
  LONGSPAN_CHECK(
      rows_of(a) == c.rows && columns_of(b) == c.columns && columns_of(a) == rows_of(b) && !c.transposed,
      "[{}, {}] [{}, {}] does not give [{}, {}]", rows_of(a), columns_of(a), rows_of(b), columns_of(b),
      c.rows, c.columns);
  LONGSPAN_CHECK(a.dtype == b.dtype, "{} times {}", name_of(a.dtype), name_of(b.dtype));
  const auto handle = static_cast<cublasHandle_t>(handle_);
  check(library().set_stream(handle, raw(stream)), "cublasSetStream");  // resets the workspace
  check(library().set_workspace(handle, workspace_.data(), workspace_.bytes()), "cublasSetWorkspace");

  const bool f64 = a.dtype == DType::kF64;
  const float alpha_f32 = static_cast<float>(alpha), beta_f32 = static_cast<float>(beta);
  const void* alpha_p = f64 ? static_cast<const void*>(&alpha) : &alpha_f32;
  const void* beta_p = f64 ? static_cast<const void*>(&beta) : &beta_f32;
  const cublasComputeType_t compute = f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
  // cuBLAS is column-major and sees each row-major matrix transposed: c' = b' a'.
  const cublasOperation_t b_op = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t a_op = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  if (batch == 1) {  // a strided batch of one is slower: cuBLAS picks better kernels for a single product
    check(library().gemm(handle, b_op, a_op, c.columns, c.rows, columns_of(a), alpha_p, b.data,
                         type_of(b.dtype), b.row_stride, a.data, type_of(a.dtype), a.row_stride, beta_p,
                         c.data, type_of(c.dtype), c.row_stride, compute, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
    return;
  }
  check(library().batched_gemm(handle, b_op, a_op, c.columns, c.rows, columns_of(a), alpha_p, b.data,
                               type_of(b.dtype), b.row_stride, b.batch_stride, a.data, type_of(a.dtype),
                               a.row_stride, a.batch_stride, beta_p, c.data, type_of(c.dtype), c.row_stride,
                               c.batch_stride, batch, compute, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
}

}  // namespace longspan::cuda
