// Stores rows that the four lanes of a quad share, as wgmma leaves them. Used by the forward and the backward
// kernel.
#pragma once

#include <cstdint>

#include "kernels/sm90/isa/bulk.cuh"

namespace longspan::sm90 {

// 32 neighbouring elements of a row. A lane has two of each eight: words[i] holds elements 8 i + 2 (lane % 4)
// and the next one. The lanes exchange words, so that each stores 16 bytes, and a quad 64 contiguous bytes.
// `to` is the lane's place: 8 (lane % 4) elements from the first. All lanes of the warp take part; rows that
// are not `there` are not written.
template <class Element>
__device__ __forceinline__ void store_row_of_quad(Element* to, const uint32_t (&words)[4], int lane,
                                                  bool there) {
  const bool odd = lane % 2 != 0, upper = lane % 4 >= 2;
  const uint32_t a = __shfl_xor_sync(0xffffffff, upper ? words[0] : words[2], 2);
  const uint32_t b = __shfl_xor_sync(0xffffffff, upper ? words[1] : words[3], 2);
  const uint32_t x0 = upper ? a : words[0], x1 = upper ? b : words[1];  // of the quad's lane `odd`
  const uint32_t y0 = upper ? words[2] : a, y1 = upper ? words[3] : b;  // of lane 2 + `odd`
  const uint32_t u = __shfl_xor_sync(0xffffffff, odd ? x0 : x1, 1);
  const uint32_t v = __shfl_xor_sync(0xffffffff, odd ? y0 : y1, 1);
  if (there) st_global_v4(to, odd ? u : x0, odd ? x1 : u, odd ? v : y0, odd ? y1 : v);
}

}  // namespace longspan::sm90
