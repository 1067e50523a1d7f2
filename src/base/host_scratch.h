// Host memory for large copies of a device's tensors, one after the other. Touching fresh pages takes several
// times as long as copying into them, so they are touched by all threads, and kept for the next copy.
#pragma once

#include <cstddef>

#include "base/buffer.h"

namespace longspan {

class HostScratch {
 public:
  HostScratch() = default;
  explicit HostScratch(size_t bytes);  // uninitialised
  ~HostScratch();                      // kept for whoever asks next
  HostScratch(HostScratch&&) noexcept = default;
  HostScratch& operator=(HostScratch&&) noexcept = default;

  void* data() const { return buffer_.data(); }

  // Gives back to the system what nobody uses now.
  static void release_all();

 private:
  Buffer buffer_;
};

}  // namespace longspan
