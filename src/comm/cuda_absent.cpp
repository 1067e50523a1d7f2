// Replaces device_copies_cuda.cpp in a build without CUDA.
#include "base/error.h"
#include "comm/device_copies.h"

namespace longspan {

std::unique_ptr<DeviceCopies> DeviceCopies::make(int) {
  LONGSPAN_CHECK(false, "this build has no CUDA");
  return nullptr;
}

}  // namespace longspan
