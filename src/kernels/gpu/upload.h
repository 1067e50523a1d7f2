// Small asynchronous copies to a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "longspan/base.h"

namespace longspan::gpu {

struct UploadSlot;

// The stream in which plans are uploaded to a device.
Stream upload_stream(const Device& device);

// One copy, possibly in flight. It is staged in a ring of page-locked memory and runs on a stream of its own,
// one for each device, so copies finish in the order in which they began.
class Upload {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;

  Upload() = default;  // of nothing: done

  // `fill` writes `bytes` bytes, at most kMostBytes, which are then copied to `to`.
  static Upload begin(void* to, size_t bytes, const Device& device, const std::function<void(char*)>& fill);

  // Work queued in `stream` from here on finds the data on the device. Returns true if the copy is already
  // done, so later work on any stream finds them, too. If the stream is being captured, the host waits
  // instead: a graph must not wait for an event that will stand for other copies.
  bool wait_in(Stream stream) const;

 private:
  Upload(const UploadSlot* slot, uint64_t use) : slot_(slot), use_(use) {}
  bool done() const;
  bool left() const;  // the slot has been filled again, so this copy is done

  const UploadSlot* slot_ = nullptr;
  uint64_t use_ = 0;  // of the slot
};

}  // namespace longspan::gpu
