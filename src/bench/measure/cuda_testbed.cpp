// The CUDA testbed. Samples run in rows behind a gate that hides launch times.
#include "bench/measure/cuda_testbed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "base/backend.h"
#include "base/cuda/cublas.h"
#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"
#include "base/error.h"
#include "base/rng.h"
#include "bench/measure/cpu_testbed.h"
#include "bench/measure/measure.h"
#include "bench/measure/nvml.h"
#include "bench/spec/timing_rule.h"

namespace longspan::bench {
namespace {

constexpr double kGateTimeout_s = 2;
constexpr int kFlushes = 2;         // times the L2's size, since its replacement is not strictly LRU
constexpr double kRow_s = 0.05;     // work in a row of samples: long compared with the pause after it
constexpr double kQueued_s = 1e-3;  // launch time that may queue behind a gate: some 300 launches
constexpr int64_t kLongestRow = 64;

int64_t samples_of(double row_s, double time_s) {
  return std::clamp<int64_t>(std::llround(std::min(row_s / std::max(time_s, 1e-9), 1e6)), 1, kLongestRow);
}

// The device's state during the samples of a case.
class Monitor {
 public:
  explicit Monitor(int index) {
    std::array<char, 32> pci_bus{};
    if (cudaDeviceGetPCIBusId(pci_bus.data(), static_cast<int>(pci_bus.size()), index) == cudaSuccess) {
      nvml_ = Nvml::open(pci_bus.data());
    }
  }

  std::string driver() const { return nvml_ ? nvml_->driver() : ""; }

  // Returns whether the device was disturbed.
  bool take() {
    if (!nvml_) return false;
    readings_.push_back(nvml_->read());
    return disturbs(readings_.back().reasons);
  }

  std::optional<DeviceState> state() {
    if (readings_.empty()) return std::nullopt;
    const auto values = [&](double GpuReading::*member) {
      std::vector<double> all;
      for (const GpuReading& reading : readings_) {
        if (reading.*member >= 0) all.push_back(reading.*member);
      }
      std::sort(all.begin(), all.end());
      if (all.empty()) all.push_back(0);
      return all;
    };
    const std::vector<double> clock = values(&GpuReading::sm_clock_mhz);
    uint64_t reasons = 0;
    for (const GpuReading& reading : readings_) reasons |= reading.reasons;
    DeviceState state{.sm_clock_mhz = {clock.front(), clock[clock.size() / 2], clock.back()},
                      .power_w = values(&GpuReading::power_w).back(),
                      .temperature_c = values(&GpuReading::temperature_c).back(),
                      .throttle_reasons = throttle_reasons(reasons)};
    readings_.clear();
    return state;
  }

 private:
  std::unique_ptr<Nvml> nvml_;
  std::vector<GpuReading> readings_;
};

// Takes samples in rows that keep the device loaded, as training does: at its power limit a chip runs slower
// than in the first milliseconds after a rest. See docs/reference/metrics.md, "On a GPU".
class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(const Device& device, Stream stream, bool cold_cache, Monitor& monitor)
      : device_(device), stream_(stream), monitor_(monitor), gate_(device.index) {
    if (cold_cache) flush_ = Buffer(kFlushes * device.cache_bytes, device);
  }

  Sample time(const Work& work) override { return row(work, 1).front(); }

  std::vector<Sample> row(const Work& work, int64_t count) override {
    while (static_cast<int64_t>(events_.size()) < count) {
      events_.emplace_back(device_.index);
    }
    // No gate before the first call: it loads code and creates handles, which may synchronise with the
    // device.
    const bool gated = !first_ && gate_works_;
    first_ = false;
    if (gated) gate_.shut(stream_, kGateTimeout_s);
    try {
      for (int64_t i = 0; i < count; ++i) {
        queue(work, events_[static_cast<size_t>(i)]);
        if (launches_hide_) gate_.open();
      }
    } catch (...) {
      gate_.open();
      throw;
    }
    gate_.open();
    const bool disturbed = monitor_.take();  // while the work runs
    events_[static_cast<size_t>(count - 1)].end.synchronize();
    if (gated && gate_.timed_out()) {
      // Either the driver's queue was full, or the work itself synchronises with the device. In the latter
      // case its launches cannot be hidden.
      if (count == 1) gate_works_ = false;
      longest_row_ = 1;
      return row(work, 1);
    }
    std::vector<Sample> samples;
    for (int64_t i = 0; i < count; ++i) {
      const Span& span = events_[static_cast<size_t>(i)];
      samples.push_back({span.end.seconds_since(span.begin), disturbed});
    }
    launches_hide_ = samples.back().time_s > 2 * launch_s_;
    return samples;
  }

  // If launching takes longer than the work, the whole row queues behind the gate, whose capacity is limited.
  int64_t row_length(double time_s) const override {
    const bool hides = time_s > 2 * launch_s_;
    return std::min(longest_row_, hides ? samples_of(kRow_s, time_s) : samples_of(kQueued_s, launch_s_));
  }

 private:
  struct Span {
    explicit Span(int index) : begin(index), end(index) {}
    cuda::Event begin, end;
  };

  void queue(const Work& work, Span& span) {
    if (flush_.bytes() != 0) cuda::fill_async(flush_.data(), 0, flush_.bytes(), stream_);
    span.begin.record(stream_);
    const double begin_s = steady_clock().now_s();
    work();
    launch_s_ = steady_clock().now_s() - begin_s;
    span.end.record(stream_);
  }

  Device device_;
  Stream stream_;
  Monitor& monitor_;
  CudaGate gate_;
  std::deque<Span> events_;
  Buffer flush_;
  double launch_s_ = 0;         // host time of the last run's launches
  bool launches_hide_ = false;  // behind earlier work
  int64_t longest_row_ = kLongestRow;
  bool first_ = true, gate_works_ = true;
};

class CudaTestbed final : public Testbed {
 public:
  explicit CudaTestbed(const Device& device)
      : device_(device), stream_(device.index), monitor_(device.index) {
    backend_of(DeviceKind::kCuda).use(device.index);  // for the calling thread's copies and fills
  }

  const Device& device() const override { return device_; }
  std::string driver() const override { return monitor_.driver(); }
  Stream stream() override { return stream_; }
  void synchronize() override { cuda::synchronize(stream_); }
  void synchronize_all() override {
    const cuda::DeviceGuard guard(device_.index);
    LONGSPAN_CUDA(cudaDeviceSynchronize());
  }
  size_t available_bytes() const override { return backend_of(DeviceKind::kCuda).free_bytes(device_.index); }

  void begin_peak() override {
    cuda::reset_peak(device_.index);
    baseline_ = cuda::allocated(device_.index).now_bytes;
  }
  size_t end_peak() override { return cuda::allocated(device_.index).peak_bytes - baseline_; }

  Clock& clock() override { return steady_clock(); }

  // Flushes the whole L2, whatever memory the work touches.
  std::unique_ptr<Stopwatch> stopwatch(std::vector<MemorySpan>, bool cold_cache) override {
    return std::make_unique<CudaStopwatch>(device_, stream_, cold_cache, monitor_);
  }

  int64_t row_length(double time_s) const override { return samples_of(kRow_s, time_s); }
  bool sample_device_state() override { return monitor_.take(); }
  std::optional<DeviceState> take_device_state() override { return monitor_.state(); }

  // Measured like the kernels: cold cache, loaded device, medians, normal random inputs (a GPU multiplies
  // zeros faster, since they cost less power). The best of two layouts of the operands counts.
  Ceiling measure_ceiling(DType dtype) override {
    constexpr int64_t kSize = 8192;
    constexpr double kFlops = 2.0 * kSize * kSize * kSize;
    const TimingRule rule{.warmup_s = 0.3, .min_samples = 30, .budget_s = 0.6, .half_width = 0.002};
    cuda::Blas blas(device_);
    std::array<Buffer, 3> memory;
    std::array<cuda::Matrix, 3> matrices;
    for (size_t i = 0; i < 3; ++i) {
      memory[i] = Buffer(static_cast<size_t>(kSize * kSize) * size_of(dtype), device_);
      fill_normal(TensorView::contiguous(memory[i].data(), dtype, kSize, 1, kSize), 1, i, device_);
      matrices[i] = {
          .data = memory[i].data(), .dtype = dtype, .rows = kSize, .columns = kSize, .row_stride = kSize};
    }
    const auto& [a, b, c] = matrices;
    Ceiling best;
    for (const auto& [name, right] : {std::pair{"A B", b}, std::pair{"A B^T", transpose(b)}}) {
      CudaStopwatch stopwatch(device_, stream_, true, monitor_);
      const Measurement m =
          measure([&] { blas.product(c, a, right, 1, 0, 1, stream_); }, stopwatch, clock(), rule);
      const double rate = kFlops / m.median_s;
      best.tried[name] = rate;
      if (rate <= best.flops_per_s) continue;
      best.flops_per_s = rate;
      best.what = fmt::format("{} product {} of {}^3 by cuBLAS {}, random data, median", name_of(dtype), name,
                              kSize, cuda::Blas::version());
      best.samples_s = m.samples_s;
    }
    if (const auto state = monitor_.state()) best.sm_clock_mhz = state->sm_clock_mhz[1];
    return best;
  }

 private:
  Device device_;
  cuda::OwnedStream stream_;
  Monitor monitor_;
  size_t baseline_ = 0;
};

}  // namespace

std::unique_ptr<Testbed> make_cuda_testbed(const Device& device) {
  LONGSPAN_CHECK(device.kind == DeviceKind::kCuda, "{} is not a CUDA device", device.name);
  return std::make_unique<CudaTestbed>(device);
}

}  // namespace longspan::bench
