#include "bench/cuda_testbed.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/backend.h"
#include "base/cublas.h"
#include "base/cuda.h"
#include "base/error.h"
#include "base/rng.h"
#include "bench/cpu_testbed.h"
#include "bench/cuda_gate.h"
#include "bench/nvml.h"

namespace longspan::bench {
namespace {

constexpr double kGateTimeout_s = 2;
constexpr int kFlushes = 2;  // times the L2's size: its replacement is not strictly in order of age

// What the samples of a case saw of the device.
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
    DeviceState state{.sm_clock_min_mhz = clock.front(),
                      .sm_clock_median_mhz = clock[clock.size() / 2],
                      .sm_clock_max_mhz = clock.back(),
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

class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(const Device& device, Stream stream, bool cold_cache, Monitor& monitor)
      : stream_(stream), monitor_(monitor), gate_(device.index), begin_(device.index), end_(device.index) {
    if (cold_cache) flush_ = Buffer(kFlushes * device.cache_bytes, device);
  }

  Sample time(const Work& work) override {
    if (flush_.bytes() != 0) cuda::fill_async(flush_.data(), 0, flush_.bytes(), stream_);
    // The first call loads code and makes handles, which may wait for the device: no gate before it.
    const bool gated = !first_ && gate_works_;
    first_ = false;
    if (gated) gate_.shut(stream_, kGateTimeout_s);
    begin_.record(stream_);
    try {
      work();
    } catch (...) {
      gate_.open();
      throw;
    }
    end_.record(stream_);
    gate_.open();
    const bool disturbed = monitor_.take();  // while the work runs
    end_.synchronize();
    if (gated && gate_.timed_out()) {  // the work waits for the device itself: its launches cannot be hidden
      gate_works_ = false;
      return time(work);
    }
    return {end_.seconds_since(begin_), disturbed};
  }

 private:
  Stream stream_;
  Monitor& monitor_;
  CudaGate gate_;
  cuda::Event begin_, end_;
  Buffer flush_;
  bool first_ = true, gate_works_ = true;
};

class CudaTestbed final : public Testbed {
 public:
  explicit CudaTestbed(const Device& device)
      : device_(device), stream_(device.index), monitor_(device.index) {}

  const Device& device() const override { return device_; }
  std::string driver() const override { return monitor_.driver(); }
  Stream stream() override { return stream_; }
  void synchronize() override { cuda::synchronize(stream_); }
  size_t available_bytes() const override { return backend_of(DeviceKind::kCuda).free_bytes(device_.index); }

  void begin_peak() override {
    cuda::reset_peak(device_.index);
    baseline_ = cuda::allocated(device_.index).now_bytes;
  }
  size_t end_peak() override { return cuda::allocated(device_.index).peak_bytes - baseline_; }

  Clock& clock() override { return steady_clock(); }

  // The whole L2 is emptied, whatever the work touches.
  std::unique_ptr<Stopwatch> stopwatch(std::vector<MemorySpan>, bool cold_cache) override {
    return std::make_unique<CudaStopwatch>(device_, stream_, cold_cache, monitor_);
  }

  bool sample_device_state() override { return monitor_.take(); }
  std::optional<DeviceState> take_device_state() override { return monitor_.state(); }

  // On normal random numbers: a GPU multiplies zeros faster, since they cost less power.
  Ceiling measure_ceiling(DType dtype) override {
    constexpr int64_t kSize = 8192;
    constexpr double kWarmup_s = 0.3, kBudget_s = 1;
    constexpr size_t kSamples = 50;
    cuda::Blas blas(device_);
    std::array<Buffer, 3> memory;
    std::array<cuda::Matrix, 3> matrices;
    for (size_t i = 0; i < 3; ++i) {
      memory[i] = Buffer(static_cast<size_t>(kSize * kSize) * size_of(dtype), device_);
      fill_normal(TensorView::contiguous(memory[i].data(), dtype, kSize, 1, kSize), 1, i, device_);
      matrices[i] = {
          .data = memory[i].data(), .dtype = dtype, .rows = kSize, .columns = kSize, .row_stride = kSize};
    }
    const Work work = [&] { blas.product(matrices[2], matrices[0], matrices[1], 1, 0, 1, stream_); };
    CudaStopwatch stopwatch(device_, stream_, true, monitor_);
    const double warm = clock().now_s() + kWarmup_s;
    do stopwatch.time(work);
    while (clock().now_s() < warm);

    Ceiling ceiling;
    const double end = clock().now_s() + kBudget_s;
    do {
      ceiling.samples_s.push_back(stopwatch.time(work).time_s);
    } while (ceiling.samples_s.size() < kSamples && clock().now_s() < end);
    std::vector<double> sorted = ceiling.samples_s;
    std::sort(sorted.begin(), sorted.end());
    ceiling.flops_per_s = 2.0 * kSize * kSize * kSize / sorted[sorted.size() / 2];
    ceiling.what = fmt::format("{} product {}^3 of cuBLAS {}, random data, median", name_of(dtype), kSize,
                               cuda::Blas::version());
    monitor_.state();  // not of any case
    return ceiling;
  }

 private:
  Device device_;
  cuda::OwnedStream stream_;
  Monitor monitor_;
  size_t baseline_ = 0;
};

}  // namespace

std::unique_ptr<Testbed> make_cuda_testbed(const Device& device) {
  LONGSPAN_CHECK(device.kind == DeviceKind::kCuda, "{} is no CUDA device", device.name);
  return std::make_unique<CudaTestbed>(device);
}

}  // namespace longspan::bench
