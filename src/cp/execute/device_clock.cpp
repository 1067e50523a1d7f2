#include "cp/execute/device_clock.h"

#include <chrono>
#include <vector>

namespace longspan {
namespace {

class CpuClock : public DeviceClock {
 public:
  Stream stream() override { return {}; }
  int mark(Stream) override {
    marks_.push_back(Clock::now());
    return static_cast<int>(marks_.size()) - 1;
  }
  double seconds(int begin, int end) override {
    return std::chrono::duration<double>(marks_[static_cast<size_t>(end)] -
                                         marks_[static_cast<size_t>(begin)])
        .count();
  }
  void reset() override { marks_.clear(); }
  void synchronize_device() override {}
  void empty_caches() override {}

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks_;
};

}  // namespace

std::unique_ptr<DeviceClock> DeviceClock::make(const Device& device) {
  if (device.kind == DeviceKind::kCuda) return make_cuda_clock(device);
  return std::make_unique<CpuClock>();
}

}  // namespace longspan
