// Copies between GPUs for ranks that are threads: per-rank copy streams, and marks in streams to wait for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "longspan/base.h"

namespace longspan {

// Rows of one memory copied to rows of another; contiguous data is one row.
struct RowCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t rows = 1, row_bytes = 0;
  size_t to_stride = 0, from_stride = 0;
};

class DeviceCopies {
 public:
  // For the current device of the calling thread. Throws in a build without CUDA.
  static std::unique_ptr<DeviceCopies> make();
  virtual ~DeviceCopies() = default;

  using Mark = std::shared_ptr<void>;                      // a point in a stream
  virtual Mark mark(Stream stream) = 0;                    // after all work queued so far
  virtual void wait(Stream stream, const Mark& mark) = 0;  // makes the stream wait; does not block the host

  // Copies with a copy engine, in this rank's stream for the peer.
  virtual Stream stream_for(int peer) = 0;
  virtual void copy(const RowCopy& copy, int peer) = 0;

  // Copies all at once in `stream` with a kernel on the SMs: faster, but it leaves no SMs for other work.
  // Requires that this device can access the memory of all others.
  virtual bool can_pull() const = 0;
  virtual void pull(std::span<const RowCopy> copies, Stream stream) = 0;

  // Whether the stream has finished all queued work.
  virtual bool done(Stream stream) = 0;
};

}  // namespace longspan
