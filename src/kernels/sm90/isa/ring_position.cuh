// Where a warp is in a ring of buffers.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// A position in a ring of kSize slots, with the parity of the passes over it.
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
