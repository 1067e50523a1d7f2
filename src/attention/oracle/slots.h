// The slot of a token: the counting oracles' hash, for the host and the GPU.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace longspan {

// Each token has three slots, one in each third of the slots. Two are different hashes of the token and catch
// a mask that is off by one (two tokens share both in one of (slots / 3)^2 cases). The third is a hash of its
// block of 64 and keeps its resolution when a slot holds thousands of tokens. Hashes differ by head, so
// mixed-up heads are caught.
inline constexpr int kSlotKinds = 3;
inline constexpr int kBlockKind = kSlotKinds - 1;
inline constexpr int64_t kSlotBlock = 64;

LONGSPAN_HOST_DEVICE inline uint64_t mixed(uint64_t x) {  // the finaliser of Appleby's MurmurHash3
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ x >> 33;
}

LONGSPAN_HOST_DEVICE inline int64_t first_slot(int kind, int64_t slots) {
  return kind * slots / kSlotKinds;
}

LONGSPAN_HOST_DEVICE inline int64_t slot_of(int64_t token, int64_t head, int kind, int64_t slots) {
  const int64_t begin = first_slot(kind, slots), end = first_slot(kind + 1, slots);
  const int64_t hashed = kind == kBlockKind ? token / kSlotBlock : token;
  const uint64_t hash =
      mixed((static_cast<uint64_t>(hashed) * kSlotKinds + static_cast<uint64_t>(kind)) * 4096 +
            static_cast<uint64_t>(head) + 1);
  return begin + static_cast<int64_t>(hash % static_cast<uint64_t>(end - begin));
}

}  // namespace longspan
