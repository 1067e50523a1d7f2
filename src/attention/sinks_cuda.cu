// add_sinks and sink_gradients read o (and dout) once, in chunks of several elements: the lanes of a warp
// take the chunks of one row or of several. Gradients have a block for each head, which adds in a fixed
// order, so that every run gives the same bits.
#include <algorithm>
#include <numbers>

#include "attention/sink_rule.h"
#include "attention/sinks_cuda.h"
#include "base/cuda/cuda.h"
#include "base/cuda/element.cuh"

namespace longspan::cuda {
namespace {

constexpr int kWarps = 32, kThreads = 32 * kWarps;
constexpr int64_t kMostBlocks = 1 << 16;
constexpr int kChunk = 8;  // elements, where rows are aligned to their bytes

template <class T, int kElements>
struct alignas(kElements == 1 ? sizeof(T) : 16) Chunk {
  T at[kElements];
};

// The part of a warp that has a row: `lanes` of it, of which this one is number `lane`. The warp has `rows`
// rows at a time, of which this lane has number `row`, or none if that is `rows`.
struct RowLanes {
  int lanes, lane, rows, row;

  __device__ explicit RowLanes(int64_t chunks) {
    const int lane_of_warp = static_cast<int>(threadIdx.x) % 32;
    lanes = static_cast<int>(chunks < 32 ? chunks : 32);
    rows = 32 / lanes;
    row = lane_of_warp / lanes;
    lane = lane_of_warp % lanes;
  }
};

template <class T, int kElements>
__global__ void __launch_bounds__(kThreads) add_kernel(TensorView o, float* lse, const float* sinks) {
  const int64_t chunks = o.head_dim / kElements, items = o.tokens * o.heads;
  const RowLanes part(chunks);
  const int64_t step = int64_t{gridDim.x} * kWarps * part.rows;
  for (int64_t first = (int64_t{blockIdx.x} * kWarps + threadIdx.x / 32) * part.rows; first < items;
       first += step) {
    const int64_t item = first + part.row;
    const bool has_row = part.row < part.rows && item < items;
    const int64_t token = item / o.heads, head = item % o.heads;  // heads of a token lie together
    float* const at = lse + head * o.tokens + token;
    const float before = has_row ? *at : -INFINITY;
    __syncwarp();  // all lanes have read it
    if (!has_row) continue;
    const WithSink with = with_sink(before, sinks[head]);
    if (part.lane == 0) *at = with.lse;
    if (before == -INFINITY) continue;  // o = 0
    auto* const row = reinterpret_cast<Chunk<T, kElements>*>(o.row<T>(token, head));
    for (int64_t c = part.lane; c < chunks; c += part.lanes) {
      Chunk<T, kElements> chunk = row[c];
#pragma unroll
      for (T& x : chunk.at) x = from_f32<T>(to_f32(x) * with.share);
      row[c] = chunk;
    }
  }
}

// Adds the sums of a block's threads in a fixed order.
__device__ void store_sum(double sum, float* to) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *to = static_cast<float>(sums[0]);
}

template <class O, class G, int kElements>
__global__ void __launch_bounds__(kThreads) gradient_kernel(SinkGradientArgs args) {
  const TensorView &o = args.o, &dout = args.dout;
  const int64_t head = blockIdx.x, chunks = o.head_dim / kElements;
  const RowLanes part(chunks);
  const float sink = args.sinks[head];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  double sum = 0;  // of this lane's elements
  if (part.row < part.rows) {
#pragma unroll 4
    for (int64_t token = warp * part.rows + part.row; token < o.tokens; token += kWarps * part.rows) {
      const auto* const a = reinterpret_cast<const Chunk<O, kElements>*>(o.row<const O>(token, head));
      const auto* const b = reinterpret_cast<const Chunk<G, kElements>*>(dout.row<const G>(token, head));
      const int64_t at = head * o.tokens + token;
      float delta = 0;
      for (int64_t c = part.lane; c < chunks; c += part.lanes) {
        const Chunk<O, kElements> of_o = a[c];
        const Chunk<G, kElements> of_dout = b[c];
#pragma unroll
        for (int i = 0; i < kElements; ++i) delta += to_f32(of_o.at[i]) * to_f32(of_dout.at[i]);
      }
      if (args.dlse != nullptr && part.lane == 0) delta -= args.dlse[at];
      sum -= double{expf(sink - args.lse[at])} * delta;
    }
  }
  store_sum(sum, args.dsinks + head);
}

__global__ void __launch_bounds__(kThreads)
    gradient_of_stats_kernel(RowStats stats, const float* sinks, float* dsinks) {
  const int64_t head = blockIdx.x, unit = head >> stats.log2_pack;
  const int pack = 1 << stats.log2_pack, rows = stats.rows >> stats.log2_pack;  // of the head, in a tile
  const float sink = sinks[head] * std::numbers::log2e_v<float>;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < stats.tiles * rows; i += kThreads) {
    const float* const tile = stats.data + (unit * stats.tiles + i / rows) * 2 * stats.rows;
    const int64_t row = i % rows * pack + head % pack;
    sum -= double{exp2f(sink - stats.sign * tile[row])} * tile[stats.rows + row];
  }
  store_sum(sum, dsinks + head);
}

// Whether rows can be read in chunks of 16 bytes.
bool has_chunks(const TensorView& x) {
  const auto bytes = static_cast<int64_t>(size_of(x.dtype));
  const auto aligned = [](int64_t address) { return address % 16 == 0; };
  return x.head_dim % kChunk == 0 && aligned(reinterpret_cast<intptr_t>(x.data)) &&
         aligned(x.token_stride * bytes) && aligned(x.head_stride * bytes);
}

}  // namespace

void add_sinks(const TensorView& o, float* lse, const float* sinks, const Device& device, Stream stream) {
  const DeviceGuard guard(device.index);
  const auto blocks =
      static_cast<unsigned>(std::min((o.tokens * o.heads + kWarps - 1) / kWarps, kMostBlocks));
  with_element_type(o.dtype, "sinks", [&](auto type) {
    using T = decltype(type);
    const auto kernel = has_chunks(o) ? add_kernel<T, kChunk> : add_kernel<T, 1>;
    kernel<<<blocks, kThreads, 0, raw(stream)>>>(o, lse, sinks);
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void sink_gradients(const SinkGradientArgs& args, const Device& device, Stream stream) {
  const DeviceGuard guard(device.index);
  const bool chunks = has_chunks(args.o) && has_chunks(args.dout);
  with_element_type(args.o.dtype, "sinks", [&](auto o_type) {
    with_element_type(args.dout.dtype, "sinks", [&](auto dout_type) {
      using O = decltype(o_type);
      using G = decltype(dout_type);
      const auto kernel = chunks ? gradient_kernel<O, G, kChunk> : gradient_kernel<O, G, 1>;
      kernel<<<static_cast<unsigned>(args.o.heads), kThreads, 0, raw(stream)>>>(args);
    });
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void sink_gradients(const RowStats& stats, int64_t heads_q, const float* sinks, float* dsinks,
                    Stream stream) {
  gradient_of_stats_kernel<<<static_cast<unsigned>(heads_q), kThreads, 0, raw(stream)>>>(stats, sinks,
                                                                                         dsinks);
  LONGSPAN_CUDA_LAUNCHED();
}

}  // namespace longspan::cuda
