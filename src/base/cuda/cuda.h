// CUDA streams, events, asynchronous copies and memory accounts, as owners that clean up. For files built
// with CUDA only (if(LONGSPAN_CUDA) in CMake); everybody else goes through base/device.h and base/buffer.h.
#pragma once

#include <cstddef>
#include <string>

#include <cuda_runtime_api.h>

#include "base/cuda/cuda_check.h"
#include "base/device.h"

namespace longspan::cuda {

inline cudaStream_t raw(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

// The newest CUDA that the driver knows ("13.0"; empty without a driver), and the runtime in this program.
std::string driver_version();
std::string runtime_version();

// Makes `index` the calling thread's device, and puts the old one back at the end. A kernel launch needs it
// where there is more than one device; what is declared here does it itself.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

// What Buffers of this process hold on a device, now and at most since reset_peak.
struct Allocated {
  size_t now_bytes = 0, peak_bytes = 0;
};
Allocated allocated(int index);
void reset_peak(int index);  // the peak starts again from what is held now

// Between any two of host and device memory, in the order of the stream. With pageable host memory the call
// returns when the host's side is done with.
void copy_async(void* to, const void* from, size_t bytes, Stream stream);
void fill_async(void* to, unsigned char value, size_t bytes, Stream stream);
void synchronize(Stream stream);  // waits; throws what kernels in the stream reported

// A stream that does not wait for the default stream.
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

// A point in a stream. With timing, the time between two can be read; without, it costs less.
class Event {
 public:
  enum class Timing : bool { kOff, kOn };
  explicit Event(int index, Timing timing = Timing::kOn);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream);
  void synchronize() const;                        // the host waits
  void wait_in(Stream stream) const;               // the stream waits
  double seconds_since(const Event& start) const;  // both recorded with timing, and reached

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace longspan::cuda
