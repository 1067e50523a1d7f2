// The kernels before and after the backward kernel. Both are bound by memory.
//
//   prepare_kernel         one CTA of 256 threads a row tile of a head: o, do, lse, dlse -> delta, -lse
//   finish_dq_kernel       the same tiles: sums of dq as threads hold them -> dq, by shared memory
//   finish_dq_rows_kernel  the same tiles: sums of dq in token rows -> dq, straight from registers
//
// Timeline, by programmatic dependent launch: prepare | backward kernel | finish; each begins while the one
// before drains.
#include <cmath>
#include <numbers>

#include "base/cuda/cuda_check.h"
#include "base/error.h"
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/backward/layout.h"
#include "kernels/sm90/backward/rows.cuh"
#include "kernels/sm90/backward/vectors.cuh"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {
namespace {

constexpr int kThreads = 256;

template <class T>
__device__ __forceinline__ void store_vector(T* to, const float (&x)[kVector]) {
  if constexpr (sizeof(T) == 4) {
    st_global_v4(to, __float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                 __float_as_uint(x[3]));
    st_global_v4(to + 4, __float_as_uint(x[4]), __float_as_uint(x[5]), __float_as_uint(x[6]),
                 __float_as_uint(x[7]));
  } else {
    st_global_v4(to, cvt_x2<T>(x[0], x[1]), cvt_x2<T>(x[2], x[3]), cvt_x2<T>(x[4], x[5]),
                 cvt_x2<T>(x[6], x[7]));
  }
}

__device__ __forceinline__ int64_t mask_of(const BackwardWorkspace& workspace, int64_t head, int64_t heads) {
  return workspace.masks > 1 ? head * workspace.masks / heads : 0;
}

// The tokens of a query head's row tile.
__device__ __forceinline__ TileExtent row_tile_of(const BackwardWorkspace& workspace, int64_t head,
                                                  int64_t heads, int64_t tile) {
  return workspace.row_tile[mask_of(workspace, head, heads) * workspace.row_tiles + tile];
}

// Neighbouring CTAs take neighbouring heads, which are contiguous in memory.
template <class Element, class Output, int kHeadDim, int kHeadDimV>
__global__ void __launch_bounds__(kThreads)
    prepare_kernel(TensorView o, TensorView dout, const float* lse, const float* dlse, BackwardWorkspace to) {
  griddepcontrol_launch_dependents();
  constexpr int kLanes = kHeadDimV / kVector;  // that share a row
  const int64_t tile = blockIdx.x / to.heads_before, head = blockIdx.x % to.heads_before;
  const int64_t number = head * to.row_tiles + tile;
  for (const auto& zeros : to.zeros)
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < zeros.count;
         i += int64_t{gridDim.x} * kThreads)
      zeros.data[i] = 0;
  float* stats = to.stats + number * 2 * to.rows;
  if (to.turn != nullptr && threadIdx.x < 2) to.turn[2 * number + threadIdx.x] = 0;
  const TileExtent extent = row_tile_of(to, head, o.heads, tile);
  const int lane = threadIdx.x % kLanes;
  for (int row = threadIdx.x / kLanes; row < to.rows; row += kThreads / kLanes) {
    const int64_t token = extent.first + row;
    float sum = 0, minus_lse = -INFINITY, less = 0;
    if (row < extent.count) {
      float a[kVector], b[kVector];
      load_vector(o.row<const Output>(token, head) + lane * kVector, a);
      load_vector(dout.row<const Element>(token, head) + lane * kVector, b);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum = fmaf(a[i], b[i], sum);
      const float l = lse[head * o.tokens + token];
      if (l != -INFINITY) minus_lse = -l * std::numbers::log2e_v<float>;
      if (dlse != nullptr && l != -INFINITY) less = dlse[head * o.tokens + token];
    }
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (lane == 0) {
      stats[stats_index(row)] = minus_lse;
      stats[to.rows + stats_index(row)] = sum - less;
    }
  }
  if (to.turn != nullptr) return;  // the first addition stores
  float4* sums = reinterpret_cast<float4*>(to.dq + number * to.rows * kHeadDim);
  if (to.in_rows) {
    sums = reinterpret_cast<float4*>(to.dq + (head * o.tokens + extent.first) * kHeadDim);
    for (int i = threadIdx.x; i < extent.count * kHeadDim / 4; i += kThreads)
      sums[i] = make_float4(0, 0, 0, 0);
    return;
  }
  for (int i = threadIdx.x; i < to.rows * kHeadDim / 4; i += kThreads) sums[i] = make_float4(0, 0, 0, 0);
}

// Through shared memory, so that whole rows are written. Sums of kParts times kHeadDim lie part by part; a
// CTA takes one part.
template <class Output, int kRows, int kHeadDim, int kParts = 1>
__global__ void __launch_bounds__(kThreads)
    finish_dq_kernel(TensorView dq, BackwardWorkspace from, float scale) {
  constexpr int kStride = kHeadDim + 4;
  constexpr int kRowsOfPart = kRows == 128 ? 64 : kRows;  // sums of 128 rows lie like those of two tiles
  constexpr int kGroupsOfPart = kRowsOfPart * kHeadDim / 4;
  __shared__ __align__(16) float rows[kRows * kStride];
  griddepcontrol_wait();
  const int part = blockIdx.x % kParts;
  const int64_t block = blockIdx.x / kParts, tile = block / from.heads_after;
  const int64_t head = dq.heads - from.heads_after + block % from.heads_after;
  const int64_t number = head * from.row_tiles + tile;
  const TileExtent extent = row_tile_of(from, head, dq.heads, tile);
  const bool empty = from.turn != nullptr && from.turn[2 * number] == 0;  // no key tile came to it
  const float4* sums = reinterpret_cast<const float4*>(from.dq + (number * kParts + part) * kRows * kHeadDim);
#pragma unroll
  for (int group = threadIdx.x; group < kRows * kHeadDim / 4; group += kThreads) {
    const float4 four = empty ? make_float4(0, 0, 0, 0) : __ldcs(sums + group);
    const float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const DqElement at = dq_element(group % kGroupsOfPart, c, kRowsOfPart);
      rows[(at.row + group / kGroupsOfPart * kRowsOfPart) * kStride + at.d] = x[c] * scale;
    }
  }
  __syncthreads();
  constexpr int kLanes = kHeadDim / kVector;
  for (int row = threadIdx.x / kLanes; row < extent.count; row += kThreads / kLanes) {
    float x[kVector];
    load_vector(rows + row * kStride + threadIdx.x % kLanes * kVector, x);
    store_vector(dq.row<Output>(extent.first + row, head) + part * kHeadDim + threadIdx.x % kLanes * kVector,
                 x);
  }
}

// The same for sums in token rows.
template <class Output, int kHeadDim>
__global__ void __launch_bounds__(kThreads)
    finish_dq_rows_kernel(TensorView dq, BackwardWorkspace from, float scale) {
  griddepcontrol_wait();
  constexpr int kChunks = kHeadDim / 4;  // of a row
  const int64_t tile = blockIdx.x / from.heads_after;
  const int64_t head = dq.heads - from.heads_after + blockIdx.x % from.heads_after;
  if (from.visited_once != nullptr &&
      from.visited_once[mask_of(from, head, dq.heads) * from.row_tiles + tile])
    return;
  const TileExtent extent = row_tile_of(from, head, dq.heads, tile);
  const bool empty =
      from.turn != nullptr && from.turn[2 * (head * from.row_tiles + tile)] == 0;  // no key tile came to it
  const int place = threadIdx.x % kChunks;
  const float* sums = from.dq + (head * dq.tokens + extent.first) * kHeadDim + 4 * place;
  constexpr int kStep = kThreads / kChunks;
#pragma unroll 4
  for (int first = 0; first < extent.count; first += kStep) {
    const int row = first + threadIdx.x / kChunks;
    const bool there = row < extent.count;
    float4 four = make_float4(0, 0, 0, 0);
    if (there && !empty) four = __ldcs(reinterpret_cast<const float4*>(sums + row * kHeadDim));
    write_dq_chunk(dq.row<Output>(extent.first + row, head) + column_of_place(row, place), place % 2 != 0,
                   four, scale, there);
  }
}

// Calls function with a null pointer to the element type of `dtype`.
template <class Function>
void with_type(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kBF16:
      return function(static_cast<__nv_bfloat16*>(nullptr));
    case DType::kF16:
      return function(static_cast<__half*>(nullptr));
    case DType::kF32:
      return function(static_cast<float*>(nullptr));
    default:
      LONGSPAN_CHECK(false, "the backward passes take bf16, f16 and f32, not {}", name_of(dtype));
  }
}

template <int kHeadDim, int kHeadDimV = kHeadDim>
void prepare(const BackwardArgs& args, const BackwardWorkspace& workspace, unsigned blocks,
             cudaStream_t stream) {
  const auto start = [&](auto* element, auto* output) {
    using Element = std::remove_pointer_t<decltype(element)>;
    using Output = std::remove_pointer_t<decltype(output)>;
    prepare_kernel<Element, Output, kHeadDim, kHeadDimV>
        <<<blocks, kThreads, 0, stream>>>(args.o, args.dout, args.lse, args.dlse, workspace);
  };
  with_type(args.dout.dtype, [&](auto* element) {
    if (args.o.dtype == DType::kF32)
      start(element, static_cast<float*>(nullptr));
    else
      start(element, element);
  });
}

// Above head_dim 128: sums as threads hold them, in tiles of 64 rows.
template <class Output, int kHeadDim>
void finish_large_dq(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                     unsigned blocks, cudaStream_t stream) {
  LONGSPAN_CHECK(workspace.rows == 64 && !workspace.in_rows,
                 "no kernel finishes dq above head_dim 128 in tiles of {} rows", workspace.rows);
  constexpr int kParts = kHeadDim / 64;
  launch_dependent(finish_dq_kernel<Output, 64, 64, kParts>, blocks * kParts, kThreads, stream, args.dq,
                   workspace, problem.softmax_scale());
}

template <class Output, int kHeadDim>
void finish_dq(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
               unsigned blocks, cudaStream_t stream) {
  const float scale = problem.softmax_scale();
  LONGSPAN_CHECK(
      workspace.rows == 64 || (workspace.rows == 80 && !workspace.in_rows) ||
          (workspace.rows == 128 && kHeadDim == 64),
      "no kernel finishes dq in tiles of {} rows: 64, 80 as threads hold them, or 128 of head_dim 64",
      workspace.rows);
  auto* kernel =
      workspace.in_rows ? finish_dq_rows_kernel<Output, kHeadDim> : finish_dq_kernel<Output, 64, kHeadDim>;
  if (workspace.rows == 80) kernel = finish_dq_kernel<Output, 80, kHeadDim>;
  if constexpr (kHeadDim == 64) {
    if (workspace.rows == 128 && !workspace.in_rows) kernel = finish_dq_kernel<Output, 128, 64>;
  }
  launch_dependent(kernel, blocks, kThreads, stream, args.dq, workspace, scale);
}

}  // namespace

void prepare_backward(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                      cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(workspace.row_tiles * workspace.heads_before);
  if (problem.head_dim == 256)
    prepare<256>(args, workspace, blocks, stream);
  else if (problem.head_dim == 192)
    prepare<192, 128>(args, workspace, blocks, stream);
  else if (problem.head_dim == 128)
    prepare<128>(args, workspace, blocks, stream);
  else
    prepare<64>(args, workspace, blocks, stream);
  LONGSPAN_CUDA_LAUNCHED();
}

void finish_backward(const Problem& problem, const BackwardArgs& args, const BackwardWorkspace& workspace,
                     cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(workspace.row_tiles * workspace.heads_after);
  with_type(args.dq.dtype, [&](auto* output) {
    using Output = std::remove_pointer_t<decltype(output)>;
    if (problem.head_dim == 256)
      finish_large_dq<Output, 256>(problem, args, workspace, blocks, stream);
    else if (problem.head_dim == 192)
      finish_large_dq<Output, 192>(problem, args, workspace, blocks, stream);
    else if (problem.head_dim == 128)
      finish_dq<Output, 128>(problem, args, workspace, blocks, stream);
    else
      finish_dq<Output, 64>(problem, args, workspace, blocks, stream);
  });
}

}  // namespace longspan::sm90
