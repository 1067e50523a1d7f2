// Small copies to a device that the host does not wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/device.h"

namespace longspan::sm90 {

struct UploadSlot;

// A copy that may be on its way. It goes through page-locked memory, of which there is a ring for each
// device, in a stream of the device's own: copies arrive in the order in which they were begun.
class Upload {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;

  Upload() = default;  // of nothing: done

  // `fill` writes `bytes` bytes, at most kMostBytes, which are then brought to `to`.
  static Upload begin(void* to, size_t bytes, const Device& device, const std::function<void(char*)>& fill);

  // What is queued in `stream` from here on finds what was copied. True: and so does whatever comes later in
  // any stream, as the copy is done. In a stream that is being captured the host waits: a graph is not to
  // wait for an event that stands for other copies later on.
  bool wait_in(Stream stream) const;
  // The host waits. False if the device has failed.
  bool wait() const noexcept;

 private:
  Upload(const UploadSlot* slot, uint64_t use) : slot_(slot), use_(use) {}
  bool done() const;
  bool left() const;  // the slot has been filled again, so that the copy is done

  const UploadSlot* slot_ = nullptr;
  uint64_t use_ = 0;  // of the slot
};

}  // namespace longspan::sm90
