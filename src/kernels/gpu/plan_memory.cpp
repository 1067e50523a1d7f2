#include "kernels/gpu/plan_memory.h"

#include <algorithm>
#include <memory>

#include "base/cuda/cuda.h"
#include "base/cuda/graph_calls.h"
#include "base/error.h"

namespace longspan::gpu {
namespace {

// Freed memory that the driver keeps for the next plans of a device.
constexpr uint64_t kKeptBytes = uint64_t{64} << 20;

struct PlanPool {  // of one device
  explicit PlanPool(int index) : freeing(index) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, index};
    LONGSPAN_CUDA(cudaMemPoolCreate(&pool, &properties));
    uint64_t kept = kKeptBytes;
    LONGSPAN_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
    // Else the upload of a plan might wait for the last use of another one.
    int off = 0;
    LONGSPAN_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &off));
  }
  cudaMemPool_t pool = nullptr;
  cuda::OwnedStream freeing;  // waits for the uses of plans that are gone
};

// Never freed: at exit the driver may be gone first.
PlanPool& pool_of(int index) {
  static std::mutex mutex;
  static auto* const pools = new std::vector<std::unique_ptr<PlanPool>>;
  const std::scoped_lock lock(mutex);
  const auto at = static_cast<size_t>(index);
  if (pools->size() <= at) pools->resize(at + 1);
  if ((*pools)[at] == nullptr) (*pools)[at] = std::make_unique<PlanPool>(index);
  return *(*pools)[at];
}

}  // namespace

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  cudaGetLastError();  // the legacy stream during another capture: the next call reports it
  return true;
}

PlanMemory::PlanMemory(size_t bytes, const Device& device, cudaStream_t stream) : device_(device.index) {
  if (bytes == 0) return;
  const cuda::DeviceGuard guard(device_);
  const cuda::OutsideCapture outside;
  void* data = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&data, bytes, pool_of(device_).pool, stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw Error(ErrorKind::kOutOfMemory,
                fmt::format("no memory for a plan of {} bytes on {}: free some", bytes, device.name),
                __FILE__, __LINE__, "cudaMallocFromPoolAsync");
  }
  LONGSPAN_CUDA(status);
  data_ = static_cast<char*>(data);
}

// Errors of the device are left to the next call that can report them.
PlanMemory::~PlanMemory() {
  if (data_ == nullptr) return;
  const cuda::DeviceGuard guard(device_);
  const cuda::OutsideCapture outside;
  const cudaStream_t freeing = cuda::raw(pool_of(device_).freeing);
  for (const auto& [stream, event] : uses_) {
    cudaStreamWaitEvent(freeing, event, 0);
    cudaEventDestroy(event);  // the wait is queued already
  }
  if (!lost_) cudaFreeAsync(data_, freeing);
}

PlanMemory& PlanMemory::operator=(PlanMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(device_, other.device_);
  std::swap(uses_, other.uses_);
  std::swap(lost_, other.lost_);
  return *this;
}

void PlanMemory::used_by(cudaStream_t stream) noexcept {
  if (data_ == nullptr) return;
  const bool captured = is_captured(stream);
  if (captured && cuda::CallerKeepsCaptured::holds()) return;
  const std::scoped_lock lock(mutex_);
  lost_ = lost_ || captured || !record(stream);
}

// Under the mutex. Streams go by their number: a handle may stand for another stream later, or in another
// thread.
bool PlanMemory::record(cudaStream_t stream) noexcept {
  unsigned long long number = 0;
  bool good = cudaStreamGetId(stream, &number) == cudaSuccess;
  auto use = std::find_if(uses_.begin(), uses_.end(), [&](const auto& u) { return u.first == number; });
  if (good && use == uses_.end()) {
    cudaEvent_t event = nullptr;
    good = cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess;
    if (good) use = uses_.insert(uses_.end(), {number, event});
  }
  good = good && cudaEventRecord(use->second, stream) == cudaSuccess;
  if (!good) cudaGetLastError();
  return good;
}

}  // namespace longspan::gpu
