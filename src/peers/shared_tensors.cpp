#include "peers/shared_tensors.h"

#include "base/buffer.h"
#include "base/error.h"
#ifdef LONGSPAN_WITH_CUDA
#include "peers/cuda_ipc.h"
#endif

namespace longspan::peers {

SharedTensors::SharedTensors(const std::vector<Named>& tensors, DeviceKind kind) : kind_(kind) {
  for (const auto& [name, tensor, result] : tensors) {
    if (tensor.elements() == 0) continue;
    LONGSPAN_CHECK(
        tensor.head_stride == tensor.head_dim && tensor.token_stride == tensor.heads * tensor.head_dim,
        "only a dense tensor can be shared");
    nlohmann::json& entry = json_[name];
#ifdef LONGSPAN_WITH_CUDA
    if (kind == DeviceKind::kCuda) entry = ipc_handle(tensor);
#endif
    if (entry.is_null()) {
      const SharedFile& file = files_.emplace_back(tensor.bytes());
      entry = {{"file", file.path()}};
      if (result) {
        results_.emplace_back(tensor, &file);
      } else {
        copy_bytes(file.data(), DeviceKind::kCpu, tensor.data, kind, tensor.bytes());
      }
    }
    entry["shape"] = {tensor.tokens, tensor.heads, tensor.head_dim};
    entry["dtype"] = name_of(tensor.dtype);
  }
}

SharedTensors::~SharedTensors() = default;

void SharedTensors::fetch_results() const {
  for (const auto& [tensor, file] : results_) {
    copy_bytes(tensor.data, kind_, file->data(), DeviceKind::kCpu, tensor.bytes());
  }
}

}  // namespace longspan::peers
