// LONGSPAN_CUDA(call): throws if a call of the CUDA runtime fails. Only for files that are built with CUDA.
#pragma once

#include <cuda_runtime_api.h>

namespace longspan::cuda {

// Throws an Error that gives the error's name and text and the call; an out-of-memory Error where it is one.
[[noreturn]] void fail(cudaError_t status, const char* call, const char* file, int line);

}  // namespace longspan::cuda

#define LONGSPAN_CUDA(call)                                                                      \
  do {                                                                                           \
    if (const cudaError_t longspan_status = (call); longspan_status != cudaSuccess) [[unlikely]] \
      ::longspan::cuda::fail(longspan_status, #call, __FILE__, __LINE__);                        \
  } while (false)

// After a kernel launch: launches return nothing, their errors wait to be asked for.
#define LONGSPAN_CUDA_LAUNCHED() LONGSPAN_CUDA(cudaGetLastError())
