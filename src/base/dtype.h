// bf16 and f16 as stored on the CPU, and their conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "longspan/base.h"

namespace longspan {

// bfloat16: the upper half of an IEEE binary32.
struct bf16 {
  uint16_t bits = 0;
};

inline float to_float(bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}

// Rounds to nearest even; NaN stays NaN.
inline bf16 to_bf16(float x) {
  uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<uint16_t>((u >> 16) | 0x40)};
  return bf16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

// IEEE binary16.
struct f16 {
  uint16_t bits = 0;
};

float to_float(f16 x);
f16 to_f16(float x);  // rounds to nearest even

}  // namespace longspan
