// Copies between GPUs for ranks that are threads: a rank's own streams for them, and points of streams to
// wait for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/device.h"

namespace longspan {

// Rows of one memory to rows of another; one row where all of it lies in one piece.
struct RowCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t rows = 1, row_bytes = 0;
  size_t to_stride = 0, from_stride = 0;
};

class DeviceCopies {
 public:
  // On the calling thread's device. Throws in a build without CUDA.
  static std::unique_ptr<DeviceCopies> make();
  virtual ~DeviceCopies() = default;

  using Mark = std::shared_ptr<void>;                      // a point of a stream
  virtual Mark mark(Stream stream) = 0;                    // what is in the stream by now
  virtual void wait(Stream stream, const Mark& mark) = 0;  // the stream waits, the host does not

  // By a copy engine, in a stream of this rank for what comes from that peer.
  virtual Stream stream_for(int peer) = 0;
  virtual void copy(const RowCopy& copy, int peer) = 0;

  // By the multiprocessors, all at once, in `stream`: faster, and nothing else can run meanwhile. Only where
  // this device reads the memory of all others.
  virtual bool can_pull() const = 0;
  virtual void pull(std::span<const RowCopy> copies, Stream stream) = 0;

  // Has the stream done all that it was given?
  virtual bool done(Stream stream) = 0;
};

}  // namespace longspan
