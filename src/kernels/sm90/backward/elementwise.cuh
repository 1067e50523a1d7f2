// What a thread computes between the products of the backward kernel: probabilities from scores, and ds.
#pragma once

#include <cstdint>

#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {

// The stats of a lane's rows (stats_index in layout.h): those of step i at stats_of(...)[kStatsStride * i].
inline constexpr int kStatsStride = 4;
__device__ __forceinline__ const float4* stats_of(const float* stats, int lane) {
  return reinterpret_cast<const float4*>(stats) + lane % 4;
}
template <int kSteps>
__device__ __forceinline__ void load_stats(float4 (&to)[kSteps], const float* stats, int lane) {
  const float4* own = stats_of(stats, lane);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) to[step] = own[kStatsStride * step];
}

// Exponents of the probabilities. Not in place: the registers of s belong to the tensor cores, and any other
// write to them makes the compiler wait for all products in flight.
template <int kSteps>
__device__ __forceinline__ void scale_scores(const float (&s)[8 * kSteps], float (&e)[8 * kSteps],
                                             const float4 (&minus_lse)[kSteps], float scale_log2) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float4 l = minus_lse[step];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * step + 2 * i;
      e[at] = fmaf(s[at], scale_log2, i < 2 ? l.x : l.z);
      e[at + 1] = fmaf(s[at + 1], scale_log2, i < 2 ? l.y : l.w);
    }
  }
}

template <int kScores>
__device__ __forceinline__ void exponentiate(float (&e)[kScores]) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) e[i] = ex2(e[i]);
}

// As an operand.
template <class Element, int kSteps>
__device__ __forceinline__ void pack(const float (&e)[8 * kSteps], uint32_t (&p)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[step][i] = cvt_x2<Element>(e[8 * step + 2 * i], e[8 * step + 2 * i + 1]);
}

// ds = p (dp - delta), as an operand.
template <class Element, int kSteps>
__device__ __forceinline__ void differentiate(const float (&p)[8 * kSteps], const float (&dp)[8 * kSteps],
                                              const float4 (&delta)[kSteps], uint32_t (&ds)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float4 d = delta[step];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * step + 2 * i;
      ds[step][i] = cvt_x2<Element>(p[at] * (dp[at] - (i < 2 ? d.x : d.z)),
                                    p[at + 1] * (dp[at + 1] - (i < 2 ? d.y : d.w)));
    }
  }
}

// The same from p as it is rounded for dv's product, where registers do not suffice for both. kStride: of
// steps in `delta`, which may be the lane's stats in shared memory.
template <class Element, int kStride, int kSteps>
__device__ __forceinline__ void differentiate(const uint32_t (&p)[kSteps][4], const float (&dp)[8 * kSteps],
                                              const float4* delta, uint32_t (&ds)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const float4 d = delta[kStride * step];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * step + 2 * i;
      ds[step][i] =
          scale_x2<Element>(p[step][i], dp[at] - (i < 2 ? d.x : d.z), dp[at + 1] - (i < 2 ? d.y : d.w));
    }
  }
}

// As floats.
template <class Element, int kSteps>
__device__ __forceinline__ void unpack(const uint32_t (&p)[kSteps][4], float (&e)[8 * kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack_x2<Element>(p[step][i]);
      e[8 * step + 2 * i] = two.x;
      e[8 * step + 2 * i + 1] = two.y;
    }
}

}  // namespace longspan::sm90
