// Replaces the GPU files in a build without CUDA.
#include "base/error.h"
#include "cp/execute/device_clock.h"
#include "cp/execute/rows.h"

namespace longspan {

std::unique_ptr<DeviceClock> make_cuda_clock(const Device& device) {
  LONGSPAN_CHECK(false, "this build has no CUDA for {}", device.name);
  return nullptr;
}

void apply_cuda(RowOperation, const Rows&, const Rows&, std::span<const RowSpan>, Stream) {
  LONGSPAN_CHECK(false, "this build has no CUDA");
}

void apply_pairs_cuda(RowOperation, std::span<const RowPair>, Stream) {
  LONGSPAN_CHECK(false, "this build has no CUDA");
}

}  // namespace longspan
