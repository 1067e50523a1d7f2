// A position in a ring of buffers.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// The current slot of a ring of kSize, and the parity of the current pass over it.
template <int kSize>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  template <int kBy = 1>
  __device__ __forceinline__ void advance() {
    static_assert(kBy <= kSize);
    slot += kBy;
    if (slot >= kSize) {
      slot -= kSize;
      parity ^= 1;
    }
  }
};

}  // namespace longspan::sm90
