// The forward kernel: o and lse of one attention, any mask, from a tile map.
//
// A block is persistent and holds 1 or 2 streams. A stream takes work items (row tile, heads) from a counter,
// the heaviest first, and has a loading warp, a storing warp and its consumer warpgroups of 64 rows each:
//
//   load warp    Q0 K0 | K1 V0 | K2 V1 | Q1 K0' V2 | K1' V0' | ...    as far ahead as the rings allow
//   warpgroup 0  [S0] exp 0 [S1 O+=P0V0] exp 1 [S2 O+=P1V1] exp 2 [S0' O+=P2V2] O out, exp 0' [S1' ...
//   warpgroup 1     [S0] exp 0 [S1 O+=P0V0] exp 1 [S2 O+=P1V1] exp 2 ...    finds the gaps by itself
//   store warp                                                                 O -> global
//
// [...] runs on the tensor cores. The loop runs over tiles, not over items: the first product of the next
// item is issued with the last one of the current item, so a short item costs no bubble. While one warpgroup
// computes exponentials the other multiplies; no barrier between them is needed for that, and handing the
// tensor cores over by named barriers was measured to be slower (docs/kernels/sm90-forward.md).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm90/forward_config.cuh"
#include "kernels/sm90/forward_params.h"
#include "kernels/sm90/forward_producer.cuh"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/softmax.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace longspan::sm90 {

template <class C>
class Consumer {
 public:
  using Element = typename C::Element;
  using ScoreProduct = Wgmma<Element, C::kColumns>;
  using OutputProduct = Wgmma<Element, C::kHeadDim>;
  static constexpr int kScores = C::kColumns / 2, kOutputs = C::kHeadDim / 2;

  // `warpgroup` counts within the stream.
  __device__ Consumer(const ForwardParams& params, StreamSharedMemory<C>& memory, StreamBarriers<C>& barriers,
                      int warpgroup, int thread)
      : params_(params),
        memory_(memory),
        barriers_(barriers),
        warpgroup_(warpgroup),
        lane_(thread % 32),
        row_(warpgroup * 64 + thread / 32 * 16 + lane_ / 4) {}

  __device__ __forceinline__ void run() {
    const float scale_log2 = params_.scale_log2;
    float s[kScores], o[kOutputs];
    uint32_t p[C::kColumns / 16][4];
    Softmax softmax;
    softmax.reset();

    // The first tile has nothing to overlap with.
    TileNote note = wait_k(false);
    if (note.flags & kEndOfWork) return;
    uint32_t spans[2];
    prefetch_spans(note, spans);
    wait_q();
    issue_scores(s);
    wgmma_wait_group<0>();
    pin_registers(s);
    release_k();
    if (note.code <= 0) mask(s, note, spans);
    softmax.raise(s, scale_log2);
    softmax.exponentiate<Element>(s, p, scale_log2);
    int accumulate = 0;
    bool k_ready = false;

    while (true) {
      note = wait_k(k_ready);
      if (note.flags & kEndOfWork) break;
      const bool first = note.flags & kFirstTile;
      if (first) {  // the products of this tile are of the next item already
        q_.advance();
        wait_q();
      }
      const bool v_ready = mbarrier_try_wait(barriers_.v_full[v_.slot], v_.parity);
      issue_scores(s);
      if (!v_ready) mbarrier_wait(barriers_.v_full[v_.slot], v_.parity);
      issue_outputs(o, p, accumulate);
      prefetch_spans(note, spans);
      wgmma_wait_group<1>();
      pin_registers(s);
      release_k();
      if (note.code <= 0) mask(s, note, spans);
      k_ready = mbarrier_try_wait(barriers_.k_full[k_.slot], k_.parity);
      wgmma_wait_group<0>();
      pin_registers(o);
      release_v();
      if (first) {
        write_outputs(o, softmax.maximum, softmax.sum, q_.slot ^ 1);
        softmax.reset();
      }
      accumulate = !first;
      bool exact = !softmax.settled;
      while (true) {
        if (exact) {
          softmax.raise(s, scale_log2);
          if (accumulate) {
#pragma unroll
            for (int i = 0; i < kOutputs; ++i) o[i] *= softmax.rescale[i / 2 % 2];
          }
        }
        if (softmax.exponentiate<Element>(s, p, scale_log2) || exact) break;
        exact = true;
      }
    }

    mbarrier_wait(barriers_.v_full[v_.slot], v_.parity);
    issue_outputs(o, p, accumulate);
    wgmma_wait_group<0>();
    pin_registers(o);
    write_outputs(o, softmax.maximum, softmax.sum, q_.slot);
  }

 private:
  // `ready`: already seen to be there.
  __device__ __forceinline__ TileNote wait_k(bool ready) {
    if (!ready) mbarrier_wait(barriers_.k_full[k_.slot], k_.parity);
    return barriers_.tile[k_.slot];
  }

  __device__ __forceinline__ void wait_q() {
    mbarrier_wait(barriers_.q_full[q_.slot], q_.parity);
    if constexpr (C::kQueryInRegisters) {
#pragma unroll
      for (int i = 0; i < C::kHeadDim / 16; ++i) ldmatrix_x4(chunk_address(q_.slot, i), query_[i]);
    }
  }

  // Where lane l finds its row of the four 8 x 8 matrices that are columns 16 step .. of the warp's 16 rows
  // of q or o: row l % 16, and lanes from 16 on the second chunk of 8 columns.
  __device__ __forceinline__ uint32_t chunk_address(int slot, int step) const {
    const int row = row_ % 64 - lane_ / 4 + lane_ % 16, chunk = step % 4 * 2 + lane_ / 16;
    return shared_address(memory_.q[slot][warpgroup_]) + step / 4 * C::kQPanelBytes + row * kPanelRowBytes +
           (chunk ^ (row & 7)) * 16;
  }

  __device__ __forceinline__ void release_k() {
    __syncwarp();  // all lanes have read the tile's note
    if (lane_ == 0) mbarrier_arrive(barriers_.k_empty[k_.slot]);
    k_.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (lane_ == 0) mbarrier_arrive(barriers_.v_empty[v_.slot]);
    v_.advance();
  }

  // s = q k^T
  __device__ __forceinline__ void issue_scores(float (&s)[kScores]) {
    const uint64_t q = descriptor_k_major(shared_address(memory_.q[q_.slot][warpgroup_]));
    const uint64_t k = descriptor_k_major(shared_address(memory_.k[k_.slot]));
    pin_registers(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, inside = step % 4 * 32;
      const uint64_t k_step = advance(k, panel * C::kKvPanelBytes + inside);
      if constexpr (C::kQueryInRegisters)
        ScoreProduct::template rs<0>(s, query_[step], k_step, step > 0);
      else
        ScoreProduct::ss(s, advance(q, panel * C::kQPanelBytes + inside), k_step, step > 0);
    }
    wgmma_commit_group();
  }

  // o (+)= p v
  __device__ __forceinline__ void issue_outputs(float (&o)[kOutputs],
                                                const uint32_t (&p)[C::kColumns / 16][4], int accumulate) {
    const uint64_t v = descriptor_n_major(shared_address(memory_.v[v_.slot]), C::kKvPanelBytes);
    pin_registers(o);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kColumns / 16; ++step)
      OutputProduct::template rs<1>(o, p[step], advance(v, step * 16 * kPanelRowBytes),
                                    step > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  __device__ __forceinline__ const uint32_t* spans_of(int32_t layer, int row) const {
    return params_.spans + int64_t{layer} * params_.rows_per_tile + (row >> params_.log2_pack);
  }

  __device__ __forceinline__ void prefetch_spans(const TileNote& note, uint32_t (&spans)[2]) const {
    if (note.code < 0 && !(~note.code & kManyLayers)) {
      spans[0] = __ldg(spans_of(~note.code, row_));
      spans[1] = __ldg(spans_of(~note.code, row_ + 8));
    }
  }

  __device__ __forceinline__ void mask(float (&s)[kScores], const TileNote& note,
                                       const uint32_t (&spans)[2]) const {
    const uint32_t quad_column = 2 * (lane_ % 4);
    ColumnBits bits;
    if (note.code == 0) {
      for (int r = 0; r < 2; ++r) bits.add(r, 0, note.flags >> 8, quad_column);
    } else if (!(~note.code & kManyLayers)) {
      for (int r = 0; r < 2; ++r) bits.add(r, spans[r] & 0xffff, spans[r] >> 16, quad_column);
    } else {
      const DevicePartial partial = params_.partials[~note.code & ~kManyLayers];
      for (int layer = 0; layer < partial.layers; ++layer)
        for (int r = 0; r < 2; ++r) {
          const uint32_t span = __ldg(spans_of(partial.first + layer, row_ + 8 * r));
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(s);
  }

  // Normalises o and sends it off, through the shared memory of its q or, in fp32, directly; writes lse.
  __device__ __forceinline__ void write_outputs(float (&o)[kOutputs], const float (&maximum)[2],
                                                const float (&thread_sum)[2], int slot) {
    const ItemNote item = barriers_.item[slot];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = thread_sum[r];
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      const float factor = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) {
        o[4 * i + 2 * r] *= factor;
        o[4 * i + 2 * r + 1] *= factor;
      }
      const int row = row_ + 8 * r;
      const int token = item.token + (row >> params_.log2_pack);
      const int head = item.head + (row & ((1 << params_.log2_pack) - 1));
      if (token < params_.tokens_q) {
        if (lane_ % 4 == 0)
          params_.lse[int64_t{head} * params_.tokens_q + token] =
              sum == 0.0f ? -INFINITY : fmaf(maximum[r], params_.scale, __logf(sum));
        if (params_.o_f32 != nullptr) {
          float* out =
              params_.o_f32 + token * params_.o_token_stride + head * params_.o_head_stride + 2 * (lane_ % 4);
#pragma unroll
          for (int i = 0; i < kOutputs / 4; ++i)
            *reinterpret_cast<float2*>(out + 8 * i) = make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
        }
      }
    }
    if (params_.o_f32 == nullptr) {
#pragma unroll
      for (int i = 0; i < C::kHeadDim / 16; ++i)
        stmatrix_x4(chunk_address(slot, i), cvt_x2<Element>(o[8 * i], o[8 * i + 1]),
                    cvt_x2<Element>(o[8 * i + 2], o[8 * i + 3]), cvt_x2<Element>(o[8 * i + 4], o[8 * i + 5]),
                    cvt_x2<Element>(o[8 * i + 6], o[8 * i + 7]));
      fence_proxy_async();
    }
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(barriers_.o_full[slot]);
  }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
  const int warpgroup_, lane_, row_;
  uint32_t query_[C::kHeadDim / 16][4];  // operand a of the first product, if kQueryInRegisters
  RingPosition<C::kQBuffers> q_;
  RingPosition<C::kKStages> k_;
  RingPosition<C::kVStages> v_;
};

// ---- the kernel ------------------------------------------------------------------------------------------

template <class C>
__device__ void init_barriers(StreamBarriers<C>& b) {
  constexpr int kConsumerWarps = 4 * C::kWarpgroups;
  for (int i = 0; i < C::kQBuffers; ++i) {
    mbarrier_init(b.q_full[i], 1);
    mbarrier_init(b.q_empty[i], 1);
    mbarrier_init(b.o_full[i], kConsumerWarps);
  }
  for (int i = 0; i < C::kVStages; ++i) {
    mbarrier_init(b.v_full[i], 1);
    mbarrier_init(b.v_empty[i], kConsumerWarps);
  }
  for (int i = 0; i < C::kKStages; ++i) {
    mbarrier_init(b.k_full[i], 1);
    mbarrier_init(b.k_empty[i], kConsumerWarps);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) sm90_forward(const __grid_constant__ ForwardParams params) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<SharedMemoryPlan<C>*>(raw);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    prefetch_tensormap(params.q);
    prefetch_tensormap(params.k);
    prefetch_tensormap(params.v);
    if (params.o_f32 == nullptr) prefetch_tensormap(params.o);
    for (int i = 0; i < C::kStreams; ++i) init_barriers<C>(shared.barriers[i]);
    fence_mbarrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    const int stream = warp / 2;
    if (stream < C::kStreams) {
      if (warp % 2 == 0)
        Loader<C>(params, shared.stream[stream], shared.barriers[stream], lane)
            .run(blockIdx.x * C::kStreams + stream, gridDim.x * C::kStreams);
      else
        store_outputs<C>(params, shared.stream[stream], shared.barriers[stream], lane);
    }
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    const int stream = (warpgroup - 1) / C::kWarpgroups;
    Consumer<C>(params, shared.stream[stream], shared.barriers[stream], (warpgroup - 1) % C::kWarpgroups,
                threadIdx.x % 128)
        .run();
  }
}

}  // namespace longspan::sm90
