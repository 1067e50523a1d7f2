// Copies between GPUs for ranks that are threads: a rank's own streams for them, and points of streams to
// wait for.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "base/device.h"

namespace longspan {

class DeviceCopies {
 public:
  // On the calling thread's device. Throws in a build without CUDA.
  static std::unique_ptr<DeviceCopies> make();
  virtual ~DeviceCopies() = default;

  using Mark = std::shared_ptr<void>;                      // a point of a stream
  virtual Mark mark(Stream stream) = 0;                    // what is in the stream by now
  virtual Stream stream_for(int peer) = 0;                 // that of the copies from a peer
  virtual void wait(Stream stream, const Mark& mark) = 0;  // the stream waits, the host does not
  virtual void copy(void* to, const void* from, size_t bytes, int peer) = 0;

  // Has the stream done all that it was given?
  virtual bool done(Stream stream) = 0;
};

}  // namespace longspan
