// The device code of softmax.h.
#include "base/cuda/cuda.h"
#include "base/cuda/device_code.h"
#include "base/cuda/element.cuh"
#include "base/error.h"
#include "kernels/gpu_naive/softmax.h"

namespace longspan::naive_gpu {
namespace {

using cuda::from_f32, cuda::to_f32;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <class Visit>
void with_type(DType dtype, const Visit& visit) {
  cuda::with_element_type(dtype, "gpu-naive", visit);
}

// The maximum and the sum of exp2(x - maximum) of the numbers so far.
struct Softmax {
  float maximum = -INFINITY, sum = 0;

  __device__ void add(const Softmax& other) {
    if (other.maximum == -INFINITY) return;
    const float top = fmaxf(maximum, other.maximum);
    sum = sum * exp2f(maximum - top) + other.sum * exp2f(other.maximum - top);
    maximum = top;
  }
};

__device__ Softmax reduce_over_block(Softmax mine) {
  __shared__ Softmax warps[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) {
    const Softmax other{__shfl_xor_sync(0xffffffffu, mine.maximum, offset),
                        __shfl_xor_sync(0xffffffffu, mine.sum, offset)};
    mine.add(other);
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  Softmax all;
  for (int warp = 0; warp < kWarps; ++warp) all.add(warps[warp]);
  return all;
}

// One block per row (blockIdx.x) of a head (blockIdx.y), here and below.
__device__ int64_t row_offset(const Square& square) {
  return (int64_t{blockIdx.y} * square.rows + blockIdx.x) * square.row_stride;
}

template <class T>
__global__ void softmax_kernel(Square product, Square probability, float* lse, TileMapView map,
                               Scoring scoring) {
  const float* s = static_cast<const float*>(product.data) + row_offset(product);
  T* p = static_cast<T*>(probability.data) + row_offset(probability);
  const ScoreRule<float> rule = scoring.of_head(blockIdx.y);
  const auto score_log2 = [&](int64_t column) {
    return rule.plain() ? s[column] * (scoring.scale * kLog2E)
                        : rule.score(s[column] * scoring.scale, blockIdx.x, column) * kLog2E;
  };
  Softmax mine;
  for_visible_columns(map, blockIdx.x, [&](int64_t column) { mine.add(Softmax{score_log2(column), 1}); });
  const Softmax row = reduce_over_block(mine);
  if (threadIdx.x == 0) {
    lse[int64_t{blockIdx.y} * product.rows + blockIdx.x] =
        row.sum > 0 ? (row.maximum + log2f(row.sum)) * kLn2 : -INFINITY;
  }
  const float inverse = 1 / row.sum;
  for_visible_columns(map, blockIdx.x, [&](int64_t column) {
    p[column] = from_f32<T>(exp2f(score_log2(column) - row.maximum) * inverse);
  });
}

template <class T>
__global__ void recompute_kernel(Square product, Square probability, const float* lse, TileMapView map,
                                 Scoring scoring) {
  float* s = static_cast<float*>(product.data) + row_offset(product);
  const ScoreRule<float> rule = scoring.of_head(blockIdx.y);
  T* p = static_cast<T*>(probability.data) + row_offset(probability);
  const float row_lse = lse[int64_t{blockIdx.y} * product.rows + blockIdx.x];
  for_visible_columns(map, blockIdx.x, [&](int64_t column) {
    const float capped = rule.capped(s[column] * scoring.scale);
    const float score = rule.slope == 0 ? capped : capped - rule.penalty(blockIdx.x, column);
    p[column] = from_f32<T>(exp2f((score - row_lse) * kLog2E));
    if (rule.softcap != 0) s[column] = rule.derivative(capped);
  });
}

template <class T>
__global__ void score_gradient_kernel(Square dp, Square probability, const float* delta, Square derivatives,
                                      TileMapView map, float scale) {
  const float* g = static_cast<const float*>(dp.data) + row_offset(dp);
  T* p = static_cast<T*>(probability.data) + row_offset(probability);
  const float* slope = derivatives.data == nullptr
                           ? nullptr
                           : static_cast<const float*>(derivatives.data) + row_offset(derivatives);
  const float row_delta = delta[int64_t{blockIdx.y} * dp.rows + blockIdx.x];
  for_visible_columns(map, blockIdx.x, [&](int64_t column) {
    const float gradient = scale * to_f32(p[column]) * (g[column] - row_delta);
    p[column] = from_f32<T>(slope == nullptr ? gradient : gradient * slope[column]);
  });
}

// One warp per row.
template <class O, class G>
__global__ void row_delta_kernel(TensorView o, TensorView dout, const float* dlse, float* delta) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= o.tokens * o.heads) return;
  const int64_t token = row / o.heads, head = row % o.heads;
  const O* a = static_cast<const O*>(o.data) + token * o.token_stride + head * o.head_stride;
  const G* b = static_cast<const G*>(dout.data) + token * dout.token_stride + head * dout.head_stride;
  float sum = 0;
  for (int64_t d = threadIdx.x % 32; d < o.head_dim; d += 32) sum += to_f32(a[d]) * to_f32(b[d]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 > 0) return;
  const int64_t at = head * o.tokens + token;
  delta[at] = dlse == nullptr ? sum : sum - dlse[at];
}

template <class T>
__global__ void round_kernel(TensorView to, const float* from) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= to.tokens * to.head_dim) return;
  static_cast<T*>(to.data)[i / to.head_dim * to.token_stride + i % to.head_dim] = from_f32<T>(from[i]);
}

dim3 grid_of(const Square& square) {
  return dim3(static_cast<unsigned>(square.rows), static_cast<unsigned>(square.heads));
}

unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

void softmax(const Square& product, const Square& probability, DType probability_dtype, float* lse,
             const TileMapView& map, const Scoring& scoring, Stream stream) {
  with_type(probability_dtype, [&](auto type) {
    using T = decltype(type);
    softmax_kernel<T>
        <<<grid_of(product), kThreads, 0, cuda::raw(stream)>>>(product, probability, lse, map, scoring);
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void recompute_probability(const Square& product, const Square& probability, DType probability_dtype,
                           const float* lse, const TileMapView& map, const Scoring& scoring, Stream stream) {
  with_type(probability_dtype, [&](auto type) {
    using T = decltype(type);
    recompute_kernel<T>
        <<<grid_of(product), kThreads, 0, cuda::raw(stream)>>>(product, probability, lse, map, scoring);
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void score_gradient(const Square& dp, const Square& probability, DType probability_dtype, const float* delta,
                    const Square* derivatives, const TileMapView& map, float scale, Stream stream) {
  with_type(probability_dtype, [&](auto type) {
    using T = decltype(type);
    score_gradient_kernel<T><<<grid_of(dp), kThreads, 0, cuda::raw(stream)>>>(
        dp, probability, delta, derivatives == nullptr ? Square() : *derivatives, map, scale);
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void row_delta(const TensorView& o, const TensorView& dout, const float* dlse, float* delta, Stream stream) {
  with_type(o.dtype, [&](auto o_type) {
    with_type(dout.dtype, [&](auto dout_type) {
      using O = decltype(o_type);
      using G = decltype(dout_type);
      row_delta_kernel<O, G>
          <<<blocks_for(o.tokens * o.heads, kWarps), kThreads, 0, cuda::raw(stream)>>>(o, dout, dlse, delta);
    });
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void round_to(const TensorView& to, const float* from, Stream stream) {
  with_type(to.dtype, [&](auto type) {
    using T = decltype(type);
    round_kernel<T>
        <<<blocks_for(to.tokens * to.head_dim, kThreads), kThreads, 0, cuda::raw(stream)>>>(to, from);
  });
  LONGSPAN_CUDA_LAUNCHED();
}

std::string no_code_reason(const Device& device) {
  return cuda::no_code_reason(reinterpret_cast<const void*>(&round_kernel<float>), device);
}

}  // namespace longspan::naive_gpu
