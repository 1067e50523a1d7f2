// Loads of eight elements of a row, for the passes before and after the backward kernel.
#pragma once

#include <cstdint>

#include "kernels/sm90/isa/bulk.cuh"

namespace longspan::sm90 {

inline constexpr int kVector = 8;  // elements that a thread loads or stores at a time

template <class T>
__device__ __forceinline__ void load_vector(const T* from, float (&x)[kVector]);

template <>
__device__ __forceinline__ void load_vector(const float* from, float (&x)[kVector]) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
  x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

template <>
__device__ __forceinline__ void load_vector(const __nv_bfloat16* from, float (&x)[kVector]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

template <>
__device__ __forceinline__ void load_vector(const __half* from, float (&x)[kVector]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(from);
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i])));
    x[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
  }
}

}  // namespace longspan::sm90
