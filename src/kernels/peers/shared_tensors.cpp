#include "kernels/peers/shared_tensors.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#ifdef LONGSPAN_WITH_CUDA
#include "kernels/peers/cuda_ipc.h"
#endif

namespace longspan::peers {

SharedTensors::File::File(size_t size) : bytes(size) {
  fd = memfd_create("longspan-tensor", MFD_CLOEXEC);
  LONGSPAN_CHECK(fd >= 0, "memfd_create: {}", std::strerror(errno));
  const bool sized = ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  data = sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (data == MAP_FAILED) {
    const int error = errno;
    close(fd);
    LONGSPAN_CHECK(false, "a shared file of {} bytes: {}", bytes, std::strerror(error));
  }
}

SharedTensors::File::~File() {
  munmap(data, bytes);
  close(fd);
}

std::string SharedTensors::File::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), fd);
}

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
      const File& file = files_.emplace_back(tensor.bytes());
      entry = {{"file", file.path()}};
      if (result) {
        results_.emplace_back(tensor, &file);
      } else {
        copy_bytes(file.data, DeviceKind::kCpu, tensor.data, kind, tensor.bytes());
      }
    }
    entry["shape"] = {tensor.tokens, tensor.heads, tensor.head_dim};
    entry["dtype"] = name_of(tensor.dtype);
  }
}

SharedTensors::~SharedTensors() = default;

void SharedTensors::fetch_results() const {
  for (const auto& [tensor, file] : results_) {
    copy_bytes(tensor.data, kind_, file->data, DeviceKind::kCpu, tensor.bytes());
  }
}

}  // namespace longspan::peers
