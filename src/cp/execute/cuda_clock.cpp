// Marks in a CUDA stream, as events.
#include <vector>

#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"
#include "cp/execute/device_clock.h"

namespace longspan {
namespace {

class CudaClock : public DeviceClock {
 public:
  explicit CudaClock(const Device& device)
      : device_(device), index_(device.index), stream_(device.index), gate_(device.index) {}

  Stream stream() override { return stream_; }

  int mark(Stream stream) override {
    if (used_ == events_.size()) events_.push_back(std::make_unique<cuda::Event>(index_));
    events_[used_]->record(stream);
    return static_cast<int>(used_++);
  }

  double seconds(int begin, int end) override {
    const cuda::Event& last = *events_[static_cast<size_t>(end)];
    last.synchronize();
    return last.seconds_since(*events_[static_cast<size_t>(begin)]);
  }

  void reset() override { used_ = 0; }

  void empty_caches() override {
    if (sweep_.data() == nullptr) sweep_ = Buffer(2 * device_.cache_bytes, device_);
    cuda::fill_async(sweep_.data(), 0, sweep_.bytes(), stream_);
    cuda::synchronize(stream_);
  }

  void hold() override { gate_.shut(stream_, kLongest_s); }
  void let_go() override { gate_.open(); }
  bool was_held() override { return !gate_.timed_out(); }

  void synchronize_device() override {
    const cuda::DeviceGuard guard(index_);
    LONGSPAN_CUDA(cudaDeviceSynchronize());
  }

 private:
  static constexpr double kLongest_s = 0.2;  // to queue a pass; exceeded if something blocks the host

  const Device device_;
  const int index_;
  Buffer sweep_;
  cuda::OwnedStream stream_;
  CudaGate gate_;
  std::vector<std::unique_ptr<cuda::Event>> events_;
  size_t used_ = 0;
};

}  // namespace

std::unique_ptr<DeviceClock> make_cuda_clock(const Device& device) {
  return std::make_unique<CudaClock>(device);
}

}  // namespace longspan
