// What measuring needs from a device: memory, a clock and a stopwatch. Each kind of device has one
// implementation (cpu_testbed.h, cuda_testbed.h); the rest of bench/ is independent of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/measure/stopwatch.h"
#include "longspan/base.h"
#include "record/record.h"

namespace longspan::bench {

using record::Ceiling;
using record::DeviceState;  // a GPU's clocks, power and temperature over the samples of a case

struct MemorySpan {
  void* data = nullptr;
  size_t bytes = 0;
};

class Testbed {
 public:
  virtual ~Testbed() = default;

  virtual const Device& device() const = 0;
  virtual std::string driver() const { return ""; }  // "" on the CPU
  virtual Stream stream() { return {}; }
  virtual void synchronize() {}
  virtual void synchronize_all() { synchronize(); }  // including a kernel's own streams

  // Memory that a case may still allocate.
  virtual size_t available_bytes() const = 0;

  // The peak of allocated memory between the two calls, beyond what was allocated at the first.
  virtual void begin_peak() = 0;
  virtual size_t end_peak() = 0;

  virtual Clock& clock() = 0;

  // A stopwatch for work that reads and writes `touched`. With cold_cache it evicts that memory before each
  // sample.
  virtual std::unique_ptr<Stopwatch> stopwatch(std::vector<MemorySpan> touched, bool cold_cache) = 0;

  // The number of samples of this length in a row (see Stopwatch::row_length).
  virtual int64_t row_length(double /*time_s*/) const { return 1; }

  // Reads clocks, power and temperature for take_device_state. True if heat or power slows the device. This
  // testbed's own stopwatches call it.
  virtual bool sample_device_state() { return false; }

  // The state over the samples since the last call; nothing on the CPU.
  virtual std::optional<DeviceState> take_device_state() { return std::nullopt; }

  // Throws an input error if this device cannot multiply matrices of the dtype.
  virtual Ceiling measure_ceiling(DType dtype) = 0;
};

}  // namespace longspan::bench
