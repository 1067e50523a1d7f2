// A device stream and timing marks in it, which a rank needs to run and time its work.
#pragma once

#include <memory>

#include "longspan/base.h"

namespace longspan {

class DeviceClock {
 public:
  static std::unique_ptr<DeviceClock> make(const Device& device);
  virtual ~DeviceClock() = default;

  virtual Stream stream() = 0;  // owned by the clock
  // Marks the current point of the stream and returns its index. On the CPU this is the current time.
  virtual int mark(Stream stream) = 0;
  virtual double seconds(int begin, int end) = 0;  // between two marks that the stream has passed
  virtual void reset() = 0;                        // removes all marks
  virtual void synchronize_device() = 0;           // blocks the host until the device is idle
  virtual void empty_caches() = 0;  // flushes a GPU's L2 before it returns; does nothing on the CPU

  // Work put into the stream between hold() and let_go() is queued and starts at let_go(), so that timing
  // includes no launch gaps (base/cuda_gate.h). On the CPU these do nothing. was_held(): whether the gate
  // stayed shut until let_go() instead of timing out; call it once the stream has passed the gate.
  virtual void hold() {}
  virtual void let_go() {}
  virtual bool was_held() { return true; }
};

std::unique_ptr<DeviceClock> make_cuda_clock(const Device& device);  // throws in a build without CUDA

}  // namespace longspan
