// add_sinks: a warp for each row and head. sink_gradients: a block for each head, whose warps take every
// kWarps-th row and whose sums are added in a fixed order, so that every run gives the same bits.
#include <algorithm>

#include "attention/sinks_cuda.h"
#include "base/cuda/cuda.h"
#include "base/cuda/element.cuh"

namespace longspan::cuda {
namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int64_t kMostBlocks = 1 << 16;

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(TensorView o, float* lse, const float* sinks) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; item < o.tokens * o.heads;
       item += int64_t{gridDim.x} * kWarps) {
    const int64_t head = item / o.tokens, token = item % o.tokens;
    const float before = lse[item], sink = sinks[head];
    __syncwarp();
    if (before == -INFINITY) {  // o = 0
      if (lane == 0) lse[item] = sink;
      continue;
    }
    const float high = fmaxf(before, sink), low = fminf(before, sink);
    if (lane == 0) lse[item] = high + log1pf(expf(low - high));
    const float share = 1 / (1 + expf(sink - before));
    T* const row = o.row<T>(token, head);
    for (int64_t d = lane; d < o.head_dim; d += 32) row[d] = from_f32<T>(to_f32(row[d]) * share);
  }
}

template <class O, class G>
__global__ void __launch_bounds__(kThreads) gradient_kernel(SinkGradientArgs args) {
  const TensorView &o = args.o, &dout = args.dout;
  const int64_t head = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const float sink = args.sinks[head];
  double sum = 0;
  for (int64_t token = warp; token < o.tokens; token += kWarps) {
    const O* const a = o.row<const O>(token, head);
    const G* const b = dout.row<const G>(token, head);
    float delta = 0;
    for (int64_t d = lane; d < o.head_dim; d += 32) delta += to_f32(a[d]) * to_f32(b[d]);
    for (int offset = 16; offset > 0; offset /= 2) delta += __shfl_xor_sync(0xffffffffu, delta, offset);
    const int64_t at = head * o.tokens + token;
    if (args.dlse != nullptr) delta -= args.dlse[at];
    sum -= double{expf(sink - args.lse[at])} * delta;
  }
  __shared__ double sums[kWarps];
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  double total = 0;
  for (const double each : sums) total += each;
  args.dsinks[head] = static_cast<float>(total);
}

}  // namespace

void add_sinks(const TensorView& o, float* lse, const float* sinks, const Device& device, Stream stream) {
  const DeviceGuard guard(device.index);
  const auto blocks = std::min((o.tokens * o.heads + kWarps - 1) / kWarps, kMostBlocks);
  with_element_type(o.dtype, "sinks", [&](auto type) {
    add_kernel<decltype(type)><<<static_cast<unsigned>(blocks), kThreads, 0, raw(stream)>>>(o, lse, sinks);
  });
  LONGSPAN_CUDA_LAUNCHED();
}

void sink_gradients(const SinkGradientArgs& args, const Device& device, Stream stream) {
  const DeviceGuard guard(device.index);
  with_element_type(args.o.dtype, "sinks", [&](auto o_type) {
    with_element_type(args.dout.dtype, "sinks", [&](auto dout_type) {
      gradient_kernel<decltype(o_type), decltype(dout_type)>
          <<<static_cast<unsigned>(args.o.heads), kThreads, 0, raw(stream)>>>(args);
    });
  });
  LONGSPAN_CUDA_LAUNCHED();
}

}  // namespace longspan::cuda
