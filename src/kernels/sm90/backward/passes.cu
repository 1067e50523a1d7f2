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

// The tiles of the passes, and what the kernel's parameters have for them.
struct Passes {
  float* stats = nullptr;
  float* dq = nullptr;
  int32_t* turn = nullptr;  // [heads_q, row_tiles, shares]
  int32_t shares = 2;       // of a tile's dq
  bool in_rows = false;     // dq's sums lie in rows (layout.h); else as threads hold them
  const TileExtent* row_tile = nullptr;
  const uint8_t* visited_once = nullptr;
  int32_t masks = 1;
  // Query heads: the first heads_before, and the last heads_after. Pass CTAs do the others.
  int32_t heads_before = 0, heads_after = 0;
  struct Counters {
    int32_t* data = nullptr;
    int64_t count = 0;
  } zeros[2];
  int32_t rows = 0, row_tiles = 0;
};

Passes passes_of(const Problem& problem, const BackwardShape& shape, const BackwardParams& params) {
  const auto heads = static_cast<int32_t>(problem.heads_q);
  const bool by_ctas = params.pass_ctas > 0;
  const int64_t parts = problem.heads_kv * params.key_tiles * shape.warpgroups();
  return {.stats = params.stats,
          .dq = params.dq,
          .turn = params.turn,
          .shares = 2 * shape.ctas(),
          .in_rows = shape.in_rows,
          .row_tile = params.row_tile,
          .visited_once = params.visited_once,
          .masks = static_cast<int32_t>(problem.masks->size()),
          .heads_before = by_ctas ? params.heads_of(0) * params.group : heads,
          .heads_after = heads - (by_ctas ? params.first_head(params.last_section) * params.group : 0),
          .zeros = {{params.counters, kBackwardCounters + 2 * (params.last_section + 1)},
                    {params.parts, params.parts == nullptr ? 0 : parts}},
          .rows = shape.rows,
          .row_tiles = params.row_tiles};
}

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

__device__ __forceinline__ int64_t mask_of(const Passes& passes, int64_t head, int64_t heads) {
  return passes.masks > 1 ? head * passes.masks / heads : 0;
}

// The tokens of a query head's row tile.
__device__ __forceinline__ TileExtent row_tile_of(const Passes& passes, int64_t head, int64_t heads,
                                                  int64_t tile) {
  return passes.row_tile[mask_of(passes, head, heads) * passes.row_tiles + tile];
}

// Neighbouring CTAs take neighbouring heads, which are contiguous in memory. Rows past a tile's last repeat
// its loads, as a branch would keep each row's loads behind the row before.
template <class Element, class Output, int kHeadDim, int kHeadDimV, int kRowsAtOnce>
__global__ void __launch_bounds__(kThreads)
    prepare_kernel(TensorView o, TensorView dout, const float* lse, const float* dlse, Passes to) {
  griddepcontrol_launch_dependents();
  constexpr int kLanes = kHeadDimV / kVector;  // that share a row
  constexpr int kStep = kThreads / kLanes;     // a thread's rows are so far apart
  const int64_t tile = blockIdx.x / to.heads_before, head = blockIdx.x % to.heads_before;
  const int64_t number = head * to.row_tiles + tile;
  const TileExtent extent = row_tile_of(to, head, o.heads, tile);
  for (const auto& zeros : to.zeros)
    for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < zeros.count;
         i += int64_t{gridDim.x} * kThreads)
      zeros.data[i] = 0;
  if (to.turn != nullptr && threadIdx.x < to.shares) to.turn[to.shares * number + threadIdx.x] = 0;
  const int64_t first_sum = to.in_rows ? head * o.tokens + extent.first : number * to.rows;
  float4* sums = reinterpret_cast<float4*>(to.dq + first_sum * kHeadDim);
  int zeros = (to.in_rows ? extent.count : to.rows) * kHeadDim / 4;
  if (to.turn != nullptr) zeros = 0;  // the first addition stores
  float* stats = to.stats + number * 2 * to.rows;
  const int lane = threadIdx.x % kLanes;
  for (int first = threadIdx.x / kLanes; first < to.rows; first += kRowsAtOnce * kStep) {
    float a[kRowsAtOnce][kVector], b[kRowsAtOnce][kVector], l[kRowsAtOnce], less[kRowsAtOnce];
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const int64_t token = max(extent.first + min(first + j * kStep, extent.count - 1), 0);
      load_vector(o.row<const Output>(token, head) + lane * kVector, a[j]);
      load_vector(dout.row<const Element>(token, head) + lane * kVector, b[j]);
      l[j] = lse[head * o.tokens + token];
      less[j] = dlse != nullptr ? dlse[head * o.tokens + token] : 0;
    }
    // Stores, while the first loads are under way.
    for (int i = threadIdx.x; i < zeros; i += kThreads) sums[i] = make_float4(0, 0, 0, 0);
    zeros = 0;
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const int row = first + j * kStep;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum = fmaf(a[j][i], b[j][i], sum);
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
      if (lane > 0 || row >= to.rows) continue;
      const bool there = row < extent.count, sees_keys = there && l[j] != -INFINITY;
      stats[stats_index(row)] = sees_keys ? -l[j] * std::numbers::log2e_v<float> : -INFINITY;
      stats[to.rows + stats_index(row)] = there ? sum - (sees_keys ? less[j] : 0) : 0;
    }
  }
}

// Through shared memory, so that whole rows are written. Sums of kParts times kHeadDim lie part by part; a
// CTA takes one part.
template <class Output, int kRows, int kHeadDim, int kParts = 1>
__global__ void __launch_bounds__(kThreads) finish_dq_kernel(TensorView dq, Passes from, float scale) {
  constexpr int kStride = kHeadDim + 4;
  constexpr int kRowsOfPart = kRows == 128 ? 64 : kRows;  // sums of 128 rows lie like those of two tiles
  constexpr int kGroupsOfPart = kRowsOfPart * kHeadDim / 4;
  constexpr int kGroups = kRows * kHeadDim / 4 / kThreads;  // of a thread
  static_assert(kGroups * kThreads * 4 == kRows * kHeadDim);
  __shared__ __align__(16) float rows[kRows * kStride];
  const int part = blockIdx.x % kParts;
  const int64_t block = blockIdx.x / kParts, tile = block / from.heads_after;
  const int64_t head = dq.heads - from.heads_after + block % from.heads_after;
  const int64_t number = head * from.row_tiles + tile;
  const TileExtent extent = row_tile_of(from, head, dq.heads, tile);
  griddepcontrol_wait();
  const bool empty = from.turn != nullptr && from.turn[from.shares * number] == 0;  // no key tile came to it
  const float4* sums = reinterpret_cast<const float4*>(from.dq + (number * kParts + part) * kRows * kHeadDim);
  float4 four[kGroups] = {};  // all loads come before the first store
  if (!empty) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) four[i] = __ldcs(sums + i * kThreads + threadIdx.x);
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int group = i * kThreads + threadIdx.x;
    const float x[4] = {four[i].x, four[i].y, four[i].z, four[i].w};
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
__global__ void __launch_bounds__(kThreads) finish_dq_rows_kernel(TensorView dq, Passes from, float scale) {
  constexpr int kChunks = kHeadDim / 4;                                // of a row
  constexpr int kStep = kThreads / kChunks, kRowsAtOnce = 64 / kStep;  // a thread's rows are kStep apart
  const int64_t tile = blockIdx.x / from.heads_after;
  const int64_t head = dq.heads - from.heads_after + blockIdx.x % from.heads_after;
  const TileExtent extent = row_tile_of(from, head, dq.heads, tile);
  const bool written = from.visited_once != nullptr &&
                       from.visited_once[mask_of(from, head, dq.heads) * from.row_tiles + tile];
  griddepcontrol_wait();
  if (written) return;
  const bool empty =
      from.turn != nullptr && from.turn[from.shares * (head * from.row_tiles + tile)] == 0;  // as above
  const int place = threadIdx.x % kChunks;
  const float* sums = from.dq + (head * dq.tokens + extent.first) * kHeadDim + 4 * place;
  for (int first = 0; first < extent.count; first += kRowsAtOnce * kStep) {
    const int row = first + threadIdx.x / kChunks;
    float4 four[kRowsAtOnce];  // all loads come before the first store
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      four[j] = make_float4(0, 0, 0, 0);
      if (row + j * kStep < extent.count && !empty)
        four[j] = __ldcs(reinterpret_cast<const float4*>(sums + (row + j * kStep) * kHeadDim));
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const int at = row + j * kStep;
      write_dq_chunk(dq.row<Output>(extent.first + at, head) + column_of_place(at, place), place % 2 != 0,
                     four[j], scale, at < extent.count);
    }
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
void prepare(const BackwardArgs& args, const Passes& passes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(passes.row_tiles * passes.heads_before);
  const auto start = [&](auto* element, auto* output) {
    using Element = std::remove_pointer_t<decltype(element)>;
    using Output = std::remove_pointer_t<decltype(output)>;
    auto* kernel = prepare_kernel<Element, Output, kHeadDim, kHeadDimV, 4>;
    if constexpr (kHeadDimV == 64)  // two rows a thread are 64 rows
      if (passes.rows == 64) kernel = prepare_kernel<Element, Output, kHeadDim, kHeadDimV, 2>;
    kernel<<<blocks, kThreads, 0, stream>>>(args.o, args.dout, args.lse, args.dlse, passes);
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
void finish_large_dq(const Problem& problem, const BackwardArgs& args, const Passes& passes,
                     cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(passes.row_tiles * passes.heads_after);
  LONGSPAN_CHECK(passes.rows == 64 && !passes.in_rows,
                 "no kernel finishes dq above head_dim 128 in tiles of {} rows", passes.rows);
  constexpr int kParts = kHeadDim / 64;
  launch_dependent(finish_dq_kernel<Output, 64, 64, kParts>, blocks * kParts, kThreads, stream, args.dq,
                   passes, problem.softmax_scale());
}

template <class Output, int kHeadDim>
void finish_dq(const Problem& problem, const BackwardArgs& args, const Passes& passes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(passes.row_tiles * passes.heads_after);
  const float scale = problem.softmax_scale();
  LONGSPAN_CHECK(
      passes.rows == 64 || (passes.rows == 80 && !passes.in_rows) || (passes.rows == 128 && kHeadDim == 64),
      "no kernel finishes dq in tiles of {} rows: 64, 80 as threads hold them, or 128 of head_dim 64",
      passes.rows);
  auto* kernel =
      passes.in_rows ? finish_dq_rows_kernel<Output, kHeadDim> : finish_dq_kernel<Output, 64, kHeadDim>;
  if (passes.rows == 80) kernel = finish_dq_kernel<Output, 80, kHeadDim>;
  if constexpr (kHeadDim == 64) {
    if (passes.rows == 128 && !passes.in_rows) kernel = finish_dq_kernel<Output, 128, 64>;
  }
  launch_dependent(kernel, blocks, kThreads, stream, args.dq, passes, scale);
}

}  // namespace

void prepare_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                      const BackwardArgs& args, cudaStream_t stream) {
  const Passes passes = passes_of(problem, shape, params);
  if (problem.head_dim == 256)
    prepare<256>(args, passes, stream);
  else if (problem.head_dim == 192)
    prepare<192, 128>(args, passes, stream);
  else if (problem.head_dim == 128)
    prepare<128>(args, passes, stream);
  else
    prepare<64>(args, passes, stream);
  LONGSPAN_CUDA_LAUNCHED();
}

void finish_backward(const Problem& problem, const BackwardShape& shape, const BackwardParams& params,
                     const BackwardArgs& args, cudaStream_t stream) {
  const Passes passes = passes_of(problem, shape, params);
  with_type(args.dq.dtype, [&](auto* output) {
    using Output = std::remove_pointer_t<decltype(output)>;
    if (problem.head_dim == 256)
      finish_large_dq<Output, 256>(problem, args, passes, stream);
    else if (problem.head_dim == 192)
      finish_large_dq<Output, 192>(problem, args, passes, stream);
    else if (problem.head_dim == 128)
      finish_dq<Output, 128>(problem, args, passes, stream);
    else
      finish_dq<Output, 64>(problem, args, passes, stream);
  });
}

}  // namespace longspan::sm90
