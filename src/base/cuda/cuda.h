// RAII wrappers for CUDA streams, events, asynchronous copies and memory accounts. Only for files that are
// built with CUDA (if(LONGSPAN_CUDA) in CMake); other files use base/device.h and base/buffer.h.
#pragma once

#include <cstddef>
#include <string>

#include <cuda_runtime_api.h>

#include "base/cuda/cuda_check.h"
#include "longspan/base.h"

namespace longspan::cuda {

inline cudaStream_t raw(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

// The newest CUDA version that the driver supports ("13.0"; empty without a driver), and the runtime linked
// here.
std::string driver_version();
std::string runtime_version();

// Makes `index` the current device of the calling thread and restores the previous one on destruction. Kernel
// launches need it on machines with several devices; the functions of this header set the device themselves.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

// Bytes in Buffers of this process on a device: now, and the peak since reset_peak.
struct Allocated {
  size_t now_bytes = 0, peak_bytes = 0;
};
Allocated allocated(int index);
void reset_peak(int index);  // the peak restarts from the current bytes

// Copies between any host and device memories, in stream order. With pageable host memory the call returns
// once the host memory is free to reuse.
void copy_async(void* to, const void* from, size_t bytes, Stream stream);
void fill_async(void* to, unsigned char value, size_t bytes, Stream stream);
void synchronize(Stream stream);  // blocks the host; throws errors reported by kernels in the stream

// A stream that does not synchronize with the default stream.
class OwnedStream {
 public:
  explicit OwnedStream(int index);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  Stream stream_;
};

// A point in a stream. Timing events can measure the time between two points; events without timing are
// cheaper.
class Event {
 public:
  enum class Timing : bool { kOff, kOn };
  explicit Event(int index, Timing timing = Timing::kOn);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream);
  void synchronize() const;                        // blocks the host
  void wait_in(Stream stream) const;               // makes the stream wait
  bool reached() const;                            // by the device
  double seconds_since(const Event& start) const;  // both must be recorded with timing, and reached

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace longspan::cuda
