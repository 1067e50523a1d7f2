#include "kernels/gpu/upload.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/cuda/graph_calls.h"
#include "base/error.h"
#include "kernels/gpu/plan_memory.h"
#include "kernels/gpu/staging_ring.h"

namespace longspan::gpu {
namespace {

constexpr size_t kSlots = 4;

}  // namespace

struct UploadSlot {
  char* memory = nullptr;
  cudaEvent_t copied = nullptr;
  std::atomic<uint64_t> use = 0;

  UploadSlot() {
    LONGSPAN_CUDA(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    void* page_locked = nullptr;
    LONGSPAN_CUDA(cudaHostAlloc(&page_locked, Upload::kMostBytes, cudaHostAllocPortable));
    memory = static_cast<char*>(page_locked);
  }
  UploadSlot(const UploadSlot&) = delete;  // nor destroyed: see queue_of()

  bool done() const {
    const cuda::OutsideCapture guard;
    const cudaError_t status = cudaEventQuery(copied);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    LONGSPAN_CUDA(status);
    return true;
  }
  void wait() const {
    const cuda::OutsideCapture guard;
    LONGSPAN_CUDA(cudaEventSynchronize(copied));
  }
};

namespace {

struct UploadQueue {  // of one device
  explicit UploadQueue(int index) : stream(index) {}
  std::mutex mutex;
  cuda::OwnedStream stream;
  StagingRing<UploadSlot> ring{kSlots, [] { return std::make_unique<UploadSlot>(); }};
};

// Never freed: at exit the driver may be gone first.
UploadQueue& queue_of(int index) {
  static std::mutex mutex;
  static auto* const queues = new std::vector<std::unique_ptr<UploadQueue>>;
  const std::scoped_lock lock(mutex);
  const auto at = static_cast<size_t>(index);
  if (queues->size() <= at) queues->resize(at + 1);
  if ((*queues)[at] == nullptr) (*queues)[at] = std::make_unique<UploadQueue>(index);
  return *(*queues)[at];
}

}  // namespace

Stream upload_stream(const Device& device) {
  return queue_of(device.index).stream;
}

Upload Upload::begin(void* to, size_t bytes, const Device& device, const std::function<void(char*)>& fill) {
  LONGSPAN_CHECK(bytes <= kMostBytes, "an upload of {} bytes: at most {}", bytes, kMostBytes);
  if (bytes == 0) return {};
  const cuda::DeviceGuard guard(device.index);
  UploadQueue& queue = queue_of(device.index);
  const std::scoped_lock lock(queue.mutex);
  UploadSlot& slot = queue.ring.take();
  const uint64_t use = ++slot.use;  // before the event is recorded again, see left()
  fill(slot.memory);
  cuda::copy_async(to, slot.memory, bytes, queue.stream);
  LONGSPAN_CUDA(cudaEventRecord(slot.copied, cuda::raw(queue.stream)));
  return {&slot, use};
}

bool Upload::left() const {
  return slot_ == nullptr || slot_->use != use_;
}

bool Upload::done() const {
  return left() || slot_->done();
}

// Another thread may refill the slot at any time. The event then stands for a later copy, which implies this
// one.
bool Upload::wait_in(Stream stream) const {
  if (done()) return true;
  if (is_captured(cuda::raw(stream))) {
    slot_->wait();
    return true;
  }
  LONGSPAN_CUDA(cudaStreamWaitEvent(cuda::raw(stream), slot_->copied, 0));
  return false;
}

}  // namespace longspan::gpu
