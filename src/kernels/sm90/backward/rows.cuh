// Converts sums of dq in token rows (layout.h) to elements of the output.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/layout.h"
#include "kernels/sm90/isa/bulk.cuh"

namespace longspan::sm90 {

template <class T>
__device__ __forceinline__ void store_four(T* to, float a, float b, float c, float d) {
  if constexpr (sizeof(T) == 4)
    st_global_v4(to, __float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d));
  else
    st_global_v2(to, cvt_x2<T>(a, b), cvt_x2<T>(c, d));
}

// The column at which the thread with the chunk at `place` writes.
__device__ __forceinline__ int column_of_place(int row_of_tile, int place) {
  const int chunk = dq_chunk_place(row_of_tile, place);  // its own inverse
  return chunk % 2 == 0 ? dq_chunk_column(chunk, 0) : dq_chunk_column(chunk - 1, 2);
}

// A thread's chunk, scaled, as four contiguous elements: threads with neighbouring places exchange halves of
// their chunks. All threads of the warp take part.
__device__ __forceinline__ float4 exchange_dq_chunk(bool odd_place, const float4& four, float scale) {
  const float x = __shfl_xor_sync(0xffffffff, odd_place ? four.x : four.z, 1) * scale;
  const float y = __shfl_xor_sync(0xffffffff, odd_place ? four.y : four.w, 1) * scale;
  const float own_x = (odd_place ? four.z : four.x) * scale, own_y = (odd_place ? four.w : four.y) * scale;
  return odd_place ? make_float4(x, y, own_x, own_y) : make_float4(own_x, own_y, x, y);
}

// Writes to the chunk's column_of_place, or nothing if `there` is false. All threads of the warp take part.
template <class Output>
__device__ __forceinline__ void write_dq_chunk(Output* to, bool odd_place, const float4& four, float scale,
                                               bool there) {
  const float4 side = exchange_dq_chunk(odd_place, four, scale);
  if (there) store_four(to, side.x, side.y, side.z, side.w);
}

}  // namespace longspan::sm90
