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

  // What is put into the stream between the two is queued and begins at the second, so that no launch is
  // waited for: base/cuda_gate.h. On the CPU nothing is queued. was_held(): not let go by its time limit,
  // once the stream has passed.
  virtual void hold() {}
  virtual void let_go() {}
  virtual bool was_held() { return true; }
};

std::unique_ptr<DeviceClock> make_cuda_clock(const Device& device);  // throws in a build without CUDA

}  // namespace longspan
