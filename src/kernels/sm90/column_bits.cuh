// Masks a thread's scores by the spans of a partial tile. Used by the forward and the backward kernel.
#pragma once

#include <cmath>
#include <cstdint>

namespace longspan::sm90 {

// The columns of a thread that its two rows see. Bit i stands for column 8 i + 2 (lane % 4) + parity.
struct ColumnBits {
  uint32_t row[2][2] = {{0, 0}, {0, 0}};  // [row][parity]

  __device__ __forceinline__ void add(int r, uint32_t begin, uint32_t end, uint32_t quad_column) {
#pragma unroll
    for (uint32_t parity = 0; parity < 2; ++parity) {
      const uint32_t shift = 7 - quad_column - parity;
      const uint32_t below_end = (1u << ((end + shift) >> 3)) - 1,
                     below_begin = (1u << ((begin + shift) >> 3)) - 1;
      row[r][parity] |= below_end & ~below_begin;
    }
  }

  // Changes only those steps of 16 columns that have a bit in `cut_steps`.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&s)[kCount], uint32_t cut_steps = ~0U) const {
#pragma unroll
    for (int step = 0; step < kCount / 8; ++step) {
      if (!(cut_steps >> step & 1)) continue;
#pragma unroll
      for (int i = 2 * step; i < 2 * step + 2; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int c = 0; c < 2; ++c)
            s[4 * i + 2 * r + c] = row[r][c] >> i & 1 ? s[4 * i + 2 * r + c] : -INFINITY;
    }
  }
};

}  // namespace longspan::sm90
