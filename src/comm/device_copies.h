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

// Several streams, so that copies from different peers run concurrently. With one stream all ranks would read
// from the same peer first.
inline constexpr int kPeerStreams = 4;

// The stream in which a rank copies from a peer. Copies within its own memory use SMs, so they wait for a
// kernel that occupies all of them: they have a stream to themselves, where no peer's copies stand behind
// them.
inline constexpr int stream_number(int peer, int rank) {
  return peer == rank ? kPeerStreams : peer % kPeerStreams;
}

class DeviceCopies {
 public:
  // For this rank, on the current device of the calling thread. Throws in a build without CUDA.
  static std::unique_ptr<DeviceCopies> make(int rank);
  virtual ~DeviceCopies() = default;

  using Mark = std::shared_ptr<void>;                      // a point in a stream
  virtual Mark mark(Stream stream) = 0;                    // after all work queued so far
  virtual void wait(Stream stream, const Mark& mark) = 0;  // makes the stream wait; does not block the host

  // Copies in this rank's stream for the peer: from another GPU with a copy engine, within its own with SMs.
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
