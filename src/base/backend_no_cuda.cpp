// The CUDA backend of a build without CUDA.
#include "base/backend.h"

namespace longspan {

const Backend* cuda_backend() {
  return nullptr;
}

}  // namespace longspan
