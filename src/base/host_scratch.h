// Reusable host memory for large copies of device tensors. Touching fresh pages takes several times as long
// as copying into them, so all threads touch them in parallel and the memory is kept for the next copy.
#pragma once

#include <cstddef>

#include "base/buffer.h"

namespace longspan {

class HostScratch {
 public:
  HostScratch() = default;
  explicit HostScratch(size_t bytes);  // uninitialised
  ~HostScratch();                      // returns the memory to the cache
  HostScratch(HostScratch&&) noexcept = default;
  HostScratch& operator=(HostScratch&&) noexcept = default;

  void* data() const { return buffer_.data(); }

  // Releases unused cached memory to the system.
  static void release_all();

 private:
  Buffer buffer_;
};

}  // namespace longspan
