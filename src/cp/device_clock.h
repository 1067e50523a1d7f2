// Points in time of a device's stream, and the stream itself: what a rank needs to run and to time its work.
#pragma once

#include <memory>

#include "base/device.h"

namespace longspan {

class DeviceClock {
 public:
  static std::unique_ptr<DeviceClock> make(const Device& device);
  virtual ~DeviceClock() = default;

  virtual Stream stream() = 0;  // its own
  // A number for this point of the stream. On the CPU: now.
  virtual int mark(Stream stream) = 0;
  virtual double seconds(int begin, int end) = 0;  // between two marks, once the stream has passed them
  virtual void reset() = 0;                        // forgets all marks
  virtual void synchronize_device() = 0;           // the host waits for all of the device's work
  virtual void empty_caches() = 0;                 // a GPU's L2, before it returns; nothing on the CPU
};

std::unique_ptr<DeviceClock> make_cuda_clock(const Device& device);  // throws in a build without CUDA

}  // namespace longspan
