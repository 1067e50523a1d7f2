// The CUDA backend of a build without CUDA.
#include "base/backend.h"

namespace longspan {

const Backend* cuda_backend() {
  return nullptr;
}

std::string no_cuda_reason() {
  return "this build has no CUDA; configure with -DLONGSPAN_CUDA=ON (preset cuda)";
}

}  // namespace longspan
