// The softmax between the two products, in registers.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {

// The softmax of two rows that a thread shares with the other three threads of its quad. Sums are kept per
// thread. Probabilities are relative to a reference: the row's maximum when it was last computed. As long as
// no thread's sum over a tile exceeds kLimit, no probability overflows, and neither a new maximum nor
// rescaling is needed.
struct Softmax {
  static constexpr float kLimit = 1024.0f;

  float maximum[2];       // the reference, in units of scores
  float minus_scaled[2];  // -maximum * scale_log2; 0 while the row has seen no key
  float sum[2];
  float rescale[2];  // the factor of the last change of the reference
  bool settled;      // all rows of the warp have seen a key

  // For the first tile of a row: the maximum of a quarter of the scores is nearly always a good enough
  // reference.
  template <int kCount>
  __device__ __forceinline__ void begin(const float (&s)[kCount], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum[r] = -INFINITY, sum[r] = 0.0f;
    raise<4>(s, scale_log2);
    if (!settled) raise<1>(s, scale_log2);
  }

  // Raises the references to the maximum of all scores so far, in one of kStride groups of 8 columns.
  template <int kStride, int kCount>
  __device__ __forceinline__ void raise(const float (&s)[kCount], float scale_log2) {
    float top[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        top[r][c] = s[2 * r + c];
#pragma unroll
        for (int i = kStride; i < kCount / 4; i += kStride)
          top[r][c] = fmaxf(top[r][c], s[4 * i + 2 * r + c]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float highest = fmaxf(top[r][0], top[r][1]);
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
      highest = fmaxf(highest, maximum[r]);
      const float before = minus_scaled[r];
      // Rounded down, so that no exponent of these scores is positive.
      minus_scaled[r] = highest == -INFINITY ? 0.0f : __fmul_rd(-highest, scale_log2);
      // Of the rounded references, since sums are relative to these.
      rescale[r] = highest == maximum[r]     ? 1.0f
                   : maximum[r] == -INFINITY ? 0.0f
                                             : ex2(minus_scaled[r] - before);
      sum[r] *= rescale[r];
      maximum[r] = highest;
    }
    settled = __all_sync(0xffffffff, maximum[0] > -INFINITY && maximum[1] > -INFINITY);
  }

  // Scores to probabilities, as operand a of the second product. Returns false if the references are too
  // low for that, never after raise<1>().
  template <class Element, int kCount, int kSteps>
  __device__ __forceinline__ bool exponentiate(const float (&s)[kCount], uint32_t (&p)[kSteps][4],
                                               float scale_log2) {
    float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
    for (int step = 0; step < kCount / 8; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2;
        const float low = ex2(fmaf(s[8 * step + 2 * i], scale_log2, minus_scaled[r]));
        const float high = ex2(fmaf(s[8 * step + 2 * i + 1], scale_log2, minus_scaled[r]));
        part[r][0] += low;
        part[r][1] += high;
        p[step][i] = cvt_x2<Element>(low, high);
      }
    const float tile[2] = {part[0][0] + part[0][1], part[1][0] + part[1][1]};
    if (__any_sync(0xffffffff, tile[0] > kLimit || tile[1] > kLimit)) return false;
    sum[0] += tile[0];
    sum[1] += tile[1];
    return true;
  }

  // The logarithm of row r's sum of exponentials, from `whole`, the sum of its four threads.
  __device__ __forceinline__ float log_sum(int r, float whole, float scale, float scale_log2) const {
    constexpr float kLog2 = 0.693147180559945f;
    const float rounded_up = -fmaf(maximum[r], scale_log2, minus_scaled[r]);  // of the reference
    return whole == 0.0f ? -INFINITY : fmaf(maximum[r], scale, (lg2(whole) + rounded_up) * kLog2);
  }
};

}  // namespace longspan::sm90
