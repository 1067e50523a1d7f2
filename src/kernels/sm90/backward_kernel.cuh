// The backward kernel: dq, dk and dv of one attention, any mask, from a tile map read by columns.
//
// A block is persistent. It takes work items (key tile, query heads of a KV head) from a counter, the
// heaviest first, and goes over the row tiles that see the keys, head after head. Two warpgroups hold 64 keys
// each, and their dk and dv in registers; scores are computed transposed, so that a thread's rows are keys
// and both p and ds are operands of dv += p^T do and dk += ds^T q straight from registers. Only ds passes
// through shared memory, for dq = ds k, of which each warpgroup computes half of head_dim over the keys of
// both.
//
//   load warp     K Q0 V dO0 | Q1 dO1 | Q2 dO2 | ...                as far ahead as the rings allow
//   warpgroup 0   [S0 dP0] exp 0 [dV] ds 0 | [dQ0 S1 dK] dq out [dP1] exp 1 [dV] ds 1 | [dQ1 S2 dK] dq out
//   ... warpgroup 1   the same; they meet at each |, where ds of both is there
//
// [...] runs on the tensor cores. The loop runs over tiles, not over items: the first product of the next
// item is issued with the last ones of the current item. Sums of dq go to global memory in fp32, by red.add
// from the registers or by the copy engine from shared memory.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward_config.cuh"
#include "kernels/sm90/backward_params.h"
#include "kernels/sm90/backward_producer.cuh"
#include "kernels/sm90/softmax.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardConsumer {
 public:
  using Element = typename C::Element;
  using ScoreProduct = SharedWgmma<Element, C::kRows>;
  using DqProduct = SharedWgmma<Element, C::kDqColumns>;
  using DkvProduct = Wgmma<Element, C::kHeadDim>;
  static constexpr int kScores = C::kRows / 2, kDq = C::kDqColumns / 2, kDkv = C::kHeadDim / 2;
  static constexpr int kSteps = C::kRows / 16;

  __device__ BackwardConsumer(const BackwardParams& params, BackwardSharedMemory<C>& shared, int warpgroup,
                              int thread)
      : params_(params),
        shared_(shared),
        warpgroup_(warpgroup),
        warp_(thread / 32),
        lane_(thread % 32),
        key_(warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4) {}

  __device__ __forceinline__ void run() {
    if constexpr (C::kPrefetchScores)
      run_ahead();
    else
      run_in_order();
    if constexpr (BackwardSharedMemory<C>::kBulk) end_dq();
  }

 private:
  // Products of the next tile are issued between those of this one, so that the tensor cores always have two
  // in hand while the threads work on a third one's results. The loop begins where none is in flight that the
  // threads will read: the compiler could not follow that.
  __device__ __forceinline__ void run_ahead() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[kDq];
    uint32_t p[kSteps][4], ds[kSteps][4], spans[2];

    BackwardNote note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      wait_k();
      issue_scores(s);
      wait_v();
      mbarrier_wait(shared_.do_full[do_.slot], do_.parity);
      issue_dp(dp);
      prefetch_spans(note, spans);
      wgmma_wait_group<0>();
      pin_registers(s);
      pin_registers(dp);
      scale_scores(s, e, q_.slot);
      if (note.code <= 0) mask(e, note, spans);
      exponentiate(e);
      pack(e, p);
      issue_dv(dv, p, 0);
      wgmma_wait_group<0>();
      pin_registers(dv);
      pin_registers(p);
      differentiate(e, dp, ds, q_.slot);
      store_ds(ds);
      if (note.flags & kItemEnds) release_v();
      meet();

      int accumulate = 0;
      while (!(note.flags & kItemEnds)) {
        // In flight: dv.
        const int slot = q_.slot, turn = turn_of(slot), dq_tile = note.dq_tile;
        issue_dq(dq);
        q_.advance();
        note = wait_q();
        wgmma_wait_group<1>();  // dv
        pin_registers(dv);
        pin_registers(p);
        release(shared_.do_empty[do_.slot]);
        do_.advance();
        issue_scores(s);
        issue_dk(dk, ds, slot, accumulate);
        accumulate = 1;
        wgmma_wait_group<2>();  // dq
        pin_registers(dq);
        add_dq(dq, dq_tile, turn);
        mbarrier_wait(shared_.do_full[do_.slot], do_.parity);
        issue_dp(dp);
        prefetch_spans(note, spans);
        wgmma_wait_group<2>();  // s
        pin_registers(s);
        scale_scores(s, e, q_.slot);
        if (note.code <= 0) mask(e, note, spans);
        exponentiate(e);
        // Passed at once; without a branch here the compiler moves the exponentials behind the wait for dk.
        pin_registers(e);
        mbarrier_wait(shared_.do_full[do_.slot], do_.parity);
        wgmma_wait_group<1>();  // dk
        pin_registers(dk);
        pin_registers(ds);
        release(shared_.q_empty[slot]);
        pack(e, p);
        issue_dv(dv, p, 1);
        wgmma_wait_group<1>();  // dp
        pin_registers(dp);
        if (note.flags & kItemEnds) release_v();
        differentiate(e, dp, ds, q_.slot);
        store_ds(ds);
        meet();
      }

      // The last tile, with the scores of the next item's first.
      const int slot = q_.slot, turn = turn_of(slot), k_slot = k_.slot, dq_tile = note.dq_tile,
                key_tile = note.key_tile;
      issue_dq(dq);
      wgmma_wait_group<1>();  // dv
      pin_registers(dv);
      pin_registers(p);
      release(shared_.do_empty[do_.slot]);
      do_.advance();
      issue_dk(dk, ds, slot, accumulate);
      q_.advance();
      note = wait_q();
      wgmma_wait_group<1>();
      pin_registers(dq);
      release(shared_.k_empty[k_slot]), k_.advance();
      add_dq(dq, dq_tile, turn);
      wgmma_wait_group<0>();
      pin_registers(dk);
      pin_registers(ds);
      release(shared_.q_empty[slot]);
      write_dk_dv(dk, dv, key_tile);
    }
  }

  // Every tile by itself: fewer registers are in use at a time.
  __device__ __forceinline__ void run_in_order() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[kDq];
    uint32_t p[kSteps][4], ds[kSteps][4], spans[2];

    BackwardNote note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const int key_tile = note.key_tile;
      int accumulate = 0, ends;
      wait_k();
      wait_v();
      do {
        const int slot = q_.slot, turn = turn_of(slot), dq_tile = note.dq_tile;
        ends = note.flags & kItemEnds;
        issue_scores(s);
        mbarrier_wait(shared_.do_full[do_.slot], do_.parity);
        issue_dp(dp);
        prefetch_spans(note, spans);
        wgmma_wait_group<1>();
        pin_registers(s);
        scale_scores(s, e, slot);
        if (note.code <= 0) mask(e, note, spans);
        exponentiate(e);
        pack(e, p);
        issue_dv(dv, p, accumulate);
        wgmma_wait_group<1>();
        pin_registers(dp);
        if (ends) release_v();
        differentiate(e, dp, ds, slot);
        store_ds(ds);
        meet();
        issue_dq(dq);
        issue_dk(dk, ds, slot, accumulate);
        q_.advance();
        note = wait_q();
        wgmma_wait_group<1>();
        pin_registers(dv);
        pin_registers(dq);
        pin_registers(p);
        release(shared_.do_empty[do_.slot]);
        do_.advance();
        if (ends) release(shared_.k_empty[k_.slot]), k_.advance();
        add_dq(dq, dq_tile, turn);
        wgmma_wait_group<0>();
        pin_registers(dk);
        pin_registers(ds);
        release(shared_.q_empty[slot]);
        accumulate = 1;
      } while (!ends);
      write_dk_dv(dk, dv, key_tile);
    }
  }

  // ---- waiting and releasing
  // -------------------------------------------------------------------------------

  __device__ __forceinline__ BackwardNote wait_q() {
    mbarrier_wait(shared_.q_full[q_.slot], q_.parity);
    const int4 raw = *reinterpret_cast<const int4*>(&shared_.note[q_.slot]);
    return {raw.x, raw.y, raw.z, raw.w};
  }
  __device__ __forceinline__ int turn_of(int slot) const {
    return BackwardSharedMemory<C>::kOrdered ? shared_.turn[slot] : 0;
  }
  __device__ __forceinline__ void wait_k() { mbarrier_wait(shared_.k_full[k_.slot], k_.parity); }
  __device__ __forceinline__ void wait_v() { mbarrier_wait(shared_.v_full[v_.slot], v_.parity); }

  __device__ __forceinline__ void release(Mbarrier& empty) {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(empty);
  }
  __device__ __forceinline__ void release_v() {
    release(shared_.v_empty[v_.slot]);
    v_.advance();
  }

  // ---- products
  // --------------------------------------------------------------------------------------------

  // [64 keys of the warpgroup, rows] = keys rows^T, over head_dim
  __device__ __forceinline__ void issue_keys_by_rows(float (&d)[kScores], const uint8_t* keys,
                                                     const uint8_t* rows) {
    const uint64_t a = descriptor_k_major(shared_address(keys) + warpgroup_ * 64 * kPanelRowBytes);
    const uint64_t b = descriptor_k_major(shared_address(rows));
    wgmma_fence();
    ScoreProduct::template set<0, 0>(d, a, b);
#pragma unroll
    for (int step = 1; step < C::kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, inside = step % 4 * 32;
      ScoreProduct::template add<0, 0>(d, advance(a, panel * C::kKvPanelBytes + inside),
                                       advance(b, panel * C::kRowPanelBytes + inside));
    }
    wgmma_commit_group();
  }
  __device__ __forceinline__ void issue_scores(float (&s)[kScores]) {
    issue_keys_by_rows(s, shared_.k[k_.slot], shared_.q[q_.slot]);
  }
  __device__ __forceinline__ void issue_dp(float (&dp)[kScores]) {
    issue_keys_by_rows(dp, shared_.v[v_.slot], shared_.dout[do_.slot]);
  }

  // [64 keys of the warpgroup, head_dim] (+)= weights^T rows, over the rows of the tile
  __device__ __forceinline__ void issue_weighted_rows(float (&d)[kDkv], const uint32_t (&weights)[kSteps][4],
                                                      const uint8_t* rows, int accumulate) {
    const uint64_t b = descriptor_n_major(shared_address(rows), C::kRowPanelBytes);
    pin_registers(d);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      DkvProduct::template rs<1>(d, weights[step], advance(b, step * 16 * kPanelRowBytes),
                                 step > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }
  __device__ __forceinline__ void issue_dv(float (&dv)[kDkv], const uint32_t (&p)[kSteps][4],
                                           int accumulate) {
    issue_weighted_rows(dv, p, shared_.dout[do_.slot], accumulate);
  }
  __device__ __forceinline__ void issue_dk(float (&dk)[kDkv], const uint32_t (&ds)[kSteps][4], int slot,
                                           int accumulate) {
    issue_weighted_rows(dk, ds, shared_.q[slot], accumulate);
  }

  // dq^T, over the keys of both warpgroups: [64 of head_dim 128, rows] or [head_dim 64, half of the rows]
  __device__ __forceinline__ void issue_dq(float (&dq)[kDq]) {
    constexpr bool kSplitDim = C::kHeadDim == 128;
    const uint64_t a = descriptor_n_major(
        shared_address(shared_.k[k_.slot]) + (kSplitDim ? warpgroup_ * C::kKvPanelBytes : 0),
        C::kKvPanelBytes);
    const uint64_t b = descriptor_k_major(shared_address(shared_.ds[ds_buffer_][0]) +
                                          (kSplitDim ? 0 : warpgroup_ * C::kDqColumns * kPanelRowBytes));
    wgmma_fence();
    DqProduct::template set<1, 0>(dq, a, b);
#pragma unroll
    for (int step = 1; step < C::kKeys / 16; ++step)
      DqProduct::template add<1, 0>(dq, advance(a, step * 16 * kPanelRowBytes),
                                    advance(b, step / 4 * C::kRowPanelBytes + step % 4 * 32));
    wgmma_commit_group();
    ds_buffer_ ^= 1;
  }

  // ---- between the products
  // --------------------------------------------------------------------------------

  __device__ __forceinline__ const uint32_t* spans_of(int32_t layer, int key) const {
    return params_.spans + int64_t{layer} * C::kKeys + key;
  }

  __device__ __forceinline__ void prefetch_spans(const BackwardNote& note, uint32_t (&spans)[2]) const {
    if (note.code < 0 && !(~note.code & kManyLayers)) {
      spans[0] = __ldg(spans_of(~note.code, key_));
      spans[1] = __ldg(spans_of(~note.code, key_ + 8));
    }
  }

  __device__ __forceinline__ void mask(float (&e)[kScores], const BackwardNote& note,
                                       const uint32_t (&spans)[2]) const {
    const uint32_t quad_column = 2 * (lane_ % 4);
    ColumnBits bits;
    if (note.code == 0) {
      for (int r = 0; r < 2; ++r) bits.add(r, 0, key_ + 8 * r < note.flags >> 8 ? C::kRows : 0, quad_column);
    } else if (!(~note.code & kManyLayers)) {
      for (int r = 0; r < 2; ++r) bits.add(r, spans[r] & 0xffff, spans[r] >> 16, quad_column);
    } else {
      const DevicePartial partial = params_.partials[~note.code & ~kManyLayers];
      for (int layer = 0; layer < partial.layers; ++layer)
        for (int r = 0; r < 2; ++r) {
          const uint32_t span = __ldg(spans_of(partial.first + layer, key_ + 8 * r));
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(e);
  }

  // Exponents of the probabilities. Not in place: the registers of s belong to the tensor cores, and what
  // else writes to them makes the compiler wait for all products in flight.
  __device__ __forceinline__ void scale_scores(const float (&s)[kScores], float (&e)[kScores],
                                               int slot) const {
    const float2* minus_lse = reinterpret_cast<const float2*>(shared_.stats[slot][0]) + lane_ % 4;
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float2 l = minus_lse[4 * i];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        e[4 * i + 2 * r] = fmaf(s[4 * i + 2 * r], params_.scale_log2, l.x);
        e[4 * i + 2 * r + 1] = fmaf(s[4 * i + 2 * r + 1], params_.scale_log2, l.y);
      }
    }
  }

  // Exponents to probabilities.
  __device__ __forceinline__ void exponentiate(float (&e)[kScores]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) e[i] = ex2(e[i]);
  }

  // As an operand.
  __device__ __forceinline__ void pack(const float (&e)[kScores], uint32_t (&p)[kSteps][4]) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[step][i] = cvt_x2<Element>(e[8 * step + 2 * i], e[8 * step + 2 * i + 1]);
  }

  // ds = p (dp - delta), as an operand.
  __device__ __forceinline__ void differentiate(const float (&p)[kScores], const float (&dp)[kScores],
                                                uint32_t (&ds)[kSteps][4], int slot) const {
    const float2* delta = reinterpret_cast<const float2*>(shared_.stats[slot][1]) + lane_ % 4;
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float2 d = delta[4 * i];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        ds[i / 2][i % 2 * 2 + r] = cvt_x2<Element>(p[4 * i + 2 * r] * (dp[4 * i + 2 * r] - d.x),
                                                   p[4 * i + 2 * r + 1] * (dp[4 * i + 2 * r + 1] - d.y));
    }
  }

  // This warpgroup's 64 keys of ds, as rows of q by keys, where dq's product finds it.
  // The product of the tile before last is over in both warpgroups, as they have met since.
  __device__ __forceinline__ void store_ds(const uint32_t (&ds)[kSteps][4]) {
    // Lane l gives row l % 8 of matrix l / 8: matrices are (keys 0 - 7, 8 - 15) of (rows 0 - 7), then of (8 -
    // 15).
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, chunk = warp_ * 2 + lane_ / 8 % 2;
    const uint32_t address =
        shared_address(shared_.ds[ds_buffer_][warpgroup_]) + row * kPanelRowBytes + (chunk ^ (row & 7)) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      stmatrix_x4_trans(address + step * 16 * kPanelRowBytes, ds[step][0], ds[step][1], ds[step][2],
                        ds[step][3]);
    fence_proxy_async();
  }

  // Both warpgroups' ds is stored.
  __device__ __forceinline__ void meet() {
    bar_sync<1, 128 * C::kConsumers>();
  }

  __device__ __forceinline__ void add_dq(const float (&dq)[kDq], int tile, int turn) {
    if constexpr (BackwardSharedMemory<C>::kBulk) {
      mbarrier_wait(shared_.dq_empty[warpgroup_], dq_parity_ ^ 1);
      dq_parity_ ^= 1;
      const uint32_t address =
          shared_address(shared_.dq[warpgroup_]) + (warp_ * C::kDqColumns * 16 + lane_ * 4) * sizeof(float);
#pragma unroll
      for (int i = 0; i < kDq / 4; ++i)
        st_shared_v4(address + i * 128 * sizeof(float), dq[4 * i], dq[4 * i + 1], dq[4 * i + 2],
                     dq[4 * i + 3]);
      if (warp_ == 0 && lane_ == 0) {
        shared_.dq_tile[warpgroup_] = tile;
        shared_.dq_turn[warpgroup_] = turn;
      }
      fence_proxy_async();
      release(shared_.dq_full[warpgroup_]);
    } else {
      float* sum = params_.dq + (int64_t{tile} * C::kConsumers + warpgroup_) * C::kDqFloats +
                   warp_ * C::kDqColumns * 16 + lane_ * 4;
#pragma unroll
      for (int i = 0; i < kDq / 4; ++i)
        red_add_v4(sum + i * 128, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    }
  }

  __device__ __forceinline__ void end_dq() {
    mbarrier_wait(shared_.dq_empty[warpgroup_], dq_parity_ ^ 1);
    if (warp_ == 0 && lane_ == 0) shared_.dq_tile[warpgroup_] = -1;
    release(shared_.dq_full[warpgroup_]);
  }

  // ---- an item's end
  // ---------------------------------------------------------------------------------------

  __device__ __forceinline__ void write_dk_dv(const float (&dk)[kDkv], const float (&dv)[kDkv],
                                              int key_tile) const {
    const float scale = params_.scale;
    if (params_.dkv != nullptr) {
      float* sum = params_.dkv + int64_t{key_tile} * 2 * C::kKeys * C::kHeadDim +
                   (warpgroup_ * 4 + warp_) * 16 * C::kHeadDim + lane_ * 4;
#pragma unroll
      for (int i = 0; i < kDkv / 4; ++i) {
        red_add_v4(sum + i * 128, scale * dk[4 * i], scale * dk[4 * i + 1], scale * dk[4 * i + 2],
                   scale * dk[4 * i + 3]);
        red_add_v4(sum + C::kKeys * C::kHeadDim + i * 128, dv[4 * i], dv[4 * i + 1], dv[4 * i + 2],
                   dv[4 * i + 3]);
      }
      return;
    }
    const int head = key_tile / params_.key_tiles;
    const int key = (key_tile - head * params_.key_tiles) * C::kKeys + key_;
    if (params_.fp32_output) {
      write_gradient<float>(dk, scale, params_.dk, key, head);
      write_gradient<float>(dv, 1.0f, params_.dv, key, head);
    } else {
      write_gradient<Element>(dk, scale, params_.dk, key, head);
      write_gradient<Element>(dv, 1.0f, params_.dv, key, head);
    }
  }

  template <class Output>
  __device__ __forceinline__ void write_gradient(const float (&d)[kDkv], float factor,
                                                 const GradientView& out, int key, int head) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (key + 8 * r >= params_.tokens_kv) continue;
      Output* row = static_cast<Output*>(out.data) + (key + 8 * r) * out.token_stride +
                    head * out.head_stride + 2 * (lane_ % 4);
#pragma unroll
      for (int i = 0; i < kDkv / 4; ++i) {
        const float low = factor * d[4 * i + 2 * r], high = factor * d[4 * i + 2 * r + 1];
        if constexpr (sizeof(Output) == 4)
          *reinterpret_cast<float2*>(row + 8 * i) = make_float2(low, high);
        else
          *reinterpret_cast<uint32_t*>(row + 8 * i) = cvt_x2<Output>(low, high);
      }
    }
  }

  const BackwardParams& params_;
  BackwardSharedMemory<C>& shared_;
  const int warpgroup_, warp_, lane_;
  const int key_;  // of the tile: the first of the thread's two
  int ds_buffer_ = 0;
  uint32_t dq_parity_ = 0;
  BackwardRing<C::kQStages> q_;
  BackwardRing<C::kDoStages> do_;
  BackwardRing<C::kKBuffers> k_;
  BackwardRing<C::kVBuffers> v_;
};

// ---- the kernel ------------------------------------------------------------------------------------------

template <class C>
__device__ void init_backward_barriers(BackwardSharedMemory<C>& shared) {
  const auto ring = [](Mbarrier* full, Mbarrier* empty, int size) {
    for (int i = 0; i < size; ++i) {
      mbarrier_init(full[i], 1);
      mbarrier_init(empty[i], C::kConsumerWarps);
    }
  };
  ring(shared.q_full, shared.q_empty, C::kQStages);
  ring(shared.do_full, shared.do_empty, C::kDoStages);
  ring(shared.k_full, shared.k_empty, C::kKBuffers);
  ring(shared.v_full, shared.v_empty, C::kVBuffers);
  for (int i = 0; i < C::kConsumers; ++i) {
    mbarrier_init(shared.dq_full[i], 4);  // the warps of a warpgroup
    mbarrier_init(shared.dq_empty[i], 1);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    sm90_backward(const __grid_constant__ BackwardParams params) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<BackwardSharedMemory<C>*>(raw);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    prefetch_tensormap(params.q);
    prefetch_tensormap(params.dout);
    prefetch_tensormap(params.k);
    prefetch_tensormap(params.v);
    init_backward_barriers<C>(shared);
    fence_mbarrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    if (warp == 0) {
      BackwardLoader<C>(params, shared, lane).run();
    } else if (BackwardSharedMemory<C>::kBulk && warp <= C::kConsumers) {
      if (lane == 0) send_dq<C>(params, shared, warp - 1);
    }
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    BackwardConsumer<C>(params, shared, warpgroup - 1, threadIdx.x % 128).run();
  }
}

}  // namespace longspan::sm90
