// LONGSPAN_CUDA(call) throws if a call of the CUDA runtime fails. Only for files that are built with CUDA.
#pragma once

#include <cuda_runtime_api.h>

namespace longspan::cuda {

// Throws an Error with the error's name, its text and the call; the kind is out-of-memory where that applies.
[[noreturn]] void fail(cudaError_t status, const char* call, const char* file, int line);

}  // namespace longspan::cuda

#define LONGSPAN_CUDA(call)                                                                      \
  do {                                                                                           \
    if (const cudaError_t longspan_status = (call); longspan_status != cudaSuccess) [[unlikely]] \
      ::longspan::cuda::fail(longspan_status, #call, __FILE__, __LINE__);                        \
  } while (false)

// Use after a kernel launch, which does not return its errors.
#define LONGSPAN_CUDA_LAUNCHED() LONGSPAN_CUDA(cudaGetLastError())
