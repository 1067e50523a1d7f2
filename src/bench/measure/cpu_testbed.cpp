// The CPU testbed. Peak memory comes from /proc/self/status.
#include "bench/measure/cpu_testbed.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include <sys/resource.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/backend.h"
#include "bench/measure/cold_cache.h"

namespace longspan::bench {
namespace {

class SteadyClock : public Clock {
 public:
  double now_s() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

class CpuStopwatch : public Stopwatch {
 public:
  CpuStopwatch(std::vector<MemorySpan> touched, bool cold_cache, size_t cache_bytes)
      : touched_(std::move(touched)), cold_cache_(cold_cache), cache_bytes_(cache_bytes) {}

  Sample time(const Work& work) override {
    if (cold_cache_) evict_from_caches(touched_, cache_bytes_);
    const auto begin = std::chrono::steady_clock::now();
    work();
    const auto end = std::chrono::steady_clock::now();
    return {std::chrono::duration<double>(end - begin).count(), false};
  }

 private:
  std::vector<MemorySpan> touched_;
  bool cold_cache_;
  size_t cache_bytes_;
};

// "VmHWM:   1234 kB" of /proc/self/status, in bytes; 0 if it is missing.
size_t process_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

// The peak of the resident set since the process started.
size_t peak_of_process() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

class CpuTestbed : public Testbed {
 public:
  CpuTestbed(Device device, MeasureCeiling measure_ceiling)
      : device_(std::move(device)), measure_ceiling_(std::move(measure_ceiling)) {}

  const Device& device() const override { return device_; }
  size_t available_bytes() const override { return backend_of(DeviceKind::kCpu).free_bytes(device_.index); }

  void begin_peak() override {
#if defined(__GLIBC__)
    malloc_trim(0);  // return freed memory, so that its reuse is counted
#endif
    // Writing "5" resets the peak (VmHWM). If that is not permitted, only growth beyond the process's earlier
    // peak is measured.
    std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
    baseline_ = process_status("VmRSS");
    if (baseline_ == 0) baseline_ = peak_of_process();
  }

  size_t end_peak() override {
    size_t peak = process_status("VmHWM");
    if (peak == 0) peak = peak_of_process();
    return peak - std::min(peak, baseline_);
  }

  Clock& clock() override {
    return steady_clock();
  }

  std::unique_ptr<Stopwatch> stopwatch(std::vector<MemorySpan> touched, bool cold_cache) override {
    return std::make_unique<CpuStopwatch>(std::move(touched), cold_cache, device_.cache_bytes);
  }

  Ceiling measure_ceiling(DType dtype) override {
    return measure_ceiling_(dtype);
  }

 private:
  Device device_;
  MeasureCeiling measure_ceiling_;
  size_t baseline_ = 0;
};

}  // namespace

std::unique_ptr<Testbed> make_cpu_testbed(const Device& device, MeasureCeiling measure_ceiling) {
  return std::make_unique<CpuTestbed>(device, std::move(measure_ceiling));
}

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

}  // namespace longspan::bench
