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

  // `warpgroup` counts within the stream.
  __device__ BackwardConsumer(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                              BackwardStreamState<C>& state, int stream, int warpgroup, int thread)
      : params_(params),
        memory_(memory),
        state_(state),
        stream_(stream),
        warpgroup_(warpgroup),
        warp_(thread / 32),
        lane_(thread % 32),
        key_(warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4) {}

  __device__ __forceinline__ void run() {
    if constexpr (C::kPrefetchScores)
      run_ahead();
    else
      run_in_order();
    if constexpr (C::kBulk) end_dq();
  }

 private:
  // As run_in_order, but the first products of a tile are issued while dk of the one before is still in
  // flight.
  __device__ __forceinline__ void run_ahead() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4], spans[2];

    Note note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const Place place = place_of(q_.slot);
      int accumulate = 0, ends, slot = -1;
      wait_k();
      wait_v();
      do {
        // In flight: dk, unless the item begins.
        const int previous_slot = slot;
        slot = q_.slot;
        ends = note.flags & kItemEnds;
        issue_scores(s);
        wait_do();
        issue_dp(dp);
        prefetch_spans(note, spans);
        wgmma_wait_group<1>();  // dk, s
        pin_registers(dk);
        pin_registers(ds);
        pin_registers(s);
        if (previous_slot >= 0) release(state_.q_empty[previous_slot]);
        scale_scores(s, e, slot);
        if (note.code <= 0) mask(e, note, spans);
        exponentiate(e);
        pack(e, p);
        issue_dv(dv, p, accumulate);
        wgmma_wait_group<1>();  // dp
        pin_registers(dp);
        if (ends) release_v();
        differentiate(e, dp, ds, slot);
        store_ds(ds);
        meet();
        issue_dq(dq);
        issue_dk(dk, ds, slot, accumulate);
        wgmma_wait_group<1>();  // dv, dq
        pin_registers(dv);
        pin_dq(dq);
        pin_registers(p);
        release(state_.do_empty[do_slot()]);
        ++tile_;
        if (ends) release(state_.k_empty[k_slot()]), ++item_;
        add_dq(dq, slot);
        q_.advance();
        accumulate = 1;
        note = wait_q();
      } while (!ends);
      wgmma_wait_group<0>();
      pin_registers(dk);
      pin_registers(ds);
      release(state_.q_empty[slot]);
      write_dk_dv(dk, dv, place);
    }
  }

  // Every tile by itself: fewer registers are in use at a time.
  __device__ __forceinline__ void run_in_order() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4], spans[2];

    Note note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const Place place = place_of(q_.slot);
      int accumulate = 0, ends;
      wait_k();
      wait_v();
      do {
        const int slot = q_.slot;
        ends = note.flags & kItemEnds;
        issue_scores(s);
        wait_do();
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
        if constexpr (C::kDqOfWarpgroup > 1) {  // dq takes as many registers as p, do v^T and more
          wgmma_wait_group<0>();
          pin_registers(dv);
          pin_registers(p);
        }
        meet();
        issue_dq(dq);
        issue_dk(dk, ds, slot, accumulate);
        wgmma_wait_group<1>();
        pin_registers(dv);
        pin_dq(dq);
        pin_registers(p);
        release(state_.do_empty[do_slot()]);
        ++tile_;
        if (ends) release(state_.k_empty[k_slot()]), ++item_;
        add_dq(dq, slot);
        wgmma_wait_group<0>();
        pin_registers(dk);
        pin_registers(ds);
        release(state_.q_empty[slot]);
        q_.advance();
        accumulate = 1;
        note = wait_q();  // after K is released: the next item's may have to take its place
      } while (!ends);
      write_dk_dv(dk, dv, place);
    }
  }

  // ---- waiting and releasing
  // -------------------------------------------------------------------------------

  // Where an item's dk and dv belong.
  struct Place {
    int key_tile, part;
  };
  __device__ __forceinline__ Place place_of(int slot) const {
    const int head = state_.note[slot].dq_tile / params_.row_tiles;
    return {state_.note[slot].key_tile, head / params_.heads_per_item % params_.parts};
  }

  // What the threads keep of a note; the rest they read again where they need it.
  struct Note {
    int32_t code, flags;
  };
  __device__ __forceinline__ Note wait_q() {
    mbarrier_wait(state_.q_full[q_.slot], q_.parity);
    const int2 raw = *reinterpret_cast<const int2*>(&state_.note[q_.slot]);
    return {raw.x, raw.y};
  }
  __device__ __forceinline__ void wait_k() {
    mbarrier_wait(state_.k_full[k_slot()], item_ / C::kKBuffers % 2);
  }
  __device__ __forceinline__ void wait_v() {
    mbarrier_wait(state_.v_full[v_slot()], item_ / C::kVBuffers % 2);
  }
  __device__ __forceinline__ void wait_do() {
    mbarrier_wait(state_.do_full[do_slot()], tile_ / C::kDoStages % 2);
  }
  __device__ __forceinline__ int k_slot() const { return item_ % C::kKBuffers; }
  __device__ __forceinline__ int v_slot() const { return item_ % C::kVBuffers; }
  __device__ __forceinline__ int do_slot() const { return tile_ % C::kDoStages; }

  __device__ __forceinline__ void release(Mbarrier& empty) {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(empty);
  }
  __device__ __forceinline__ void release_v() { release(state_.v_empty[v_slot()]); }

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
    issue_keys_by_rows(s, memory_.k[k_slot()], memory_.q[q_.slot]);
  }
  __device__ __forceinline__ void issue_dp(float (&dp)[kScores]) {
    issue_keys_by_rows(dp, memory_.v[v_slot()], memory_.dout[do_slot()]);
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
    issue_weighted_rows(dv, p, memory_.dout[do_slot()], accumulate);
  }
  __device__ __forceinline__ void issue_dk(float (&dk)[kDkv], const uint32_t (&ds)[kSteps][4], int slot,
                                           int accumulate) {
    issue_weighted_rows(dk, ds, memory_.q[slot], accumulate);
  }

  // dq^T, over the keys of all warpgroups: [64 of head_dim, rows], or with head_dim 64 half of the rows
  __device__ __forceinline__ void issue_dq(float (&dq)[C::kDqOfWarpgroup][kDq]) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < C::kDqOfWarpgroup; ++i) {
      const int product = warpgroup_ * C::kDqOfWarpgroup + i;
      constexpr bool kSplitRows = C::kDqColumns < C::kRows;
      const uint64_t a = descriptor_n_major(
          shared_address(memory_.k[k_slot()]) + (kSplitRows ? 0 : product * C::kKvPanelBytes),
          C::kKvPanelBytes);
      const uint64_t b = descriptor_k_major(shared_address(memory_.ds[tile_ % C::kDsBuffers][0]) +
                                            (kSplitRows ? product * C::kDqColumns * kPanelRowBytes : 0));
      if constexpr (!C::kTransposedDq) {
        DqProduct::template set<0, 1>(dq[i], b, a);
#pragma unroll
        for (int step = 1; step < C::kKeys / 16; ++step)
          DqProduct::template add<0, 1>(dq[i], advance(b, step / 4 * C::kRowPanelBytes + step % 4 * 32),
                                        advance(a, step * 16 * kPanelRowBytes));
        continue;
      }
      DqProduct::template set<1, 0>(dq[i], a, b);
#pragma unroll
      for (int step = 1; step < C::kKeys / 16; ++step)
        DqProduct::template add<1, 0>(dq[i], advance(a, step * 16 * kPanelRowBytes),
                                      advance(b, step / 4 * C::kRowPanelBytes + step % 4 * 32));
    }
    wgmma_commit_group();
  }

  // ---- between the products
  // --------------------------------------------------------------------------------

  __device__ __forceinline__ const uint32_t* spans_of(int32_t layer, int key) const {
    return params_.spans + int64_t{layer} * C::kKeys + key;
  }

  __device__ __forceinline__ void prefetch_spans(const Note& note, uint32_t (&spans)[2]) const {
    if (note.code < 0 && !(~note.code & kManyLayers)) {
      spans[0] = __ldg(spans_of(~note.code, key_));
      spans[1] = __ldg(spans_of(~note.code, key_ + 8));
    }
  }

  __device__ __forceinline__ void mask(float (&e)[kScores], const Note& note,
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
    const float4* minus_lse = reinterpret_cast<const float4*>(state_.stats[slot][0]) + lane_ % 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const float4 l = minus_lse[4 * step];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        e[at] = fmaf(s[at], params_.scale_log2, i < 2 ? l.x : l.z);
        e[at + 1] = fmaf(s[at + 1], params_.scale_log2, i < 2 ? l.y : l.w);
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
    const float4* delta = reinterpret_cast<const float4*>(state_.stats[slot][1]) + lane_ % 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const float4 d = delta[4 * step];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        ds[step][i] = cvt_x2<Element>(p[at] * (dp[at] - (i < 2 ? d.x : d.z)),
                                      p[at + 1] * (dp[at + 1] - (i < 2 ? d.y : d.w)));
      }
    }
  }

  // This warpgroup's 64 keys of ds, as rows of q by keys, where dq's product finds it.
  // The product of the tile before last is over in both warpgroups, as they have met since.
  __device__ __forceinline__ void store_ds(const uint32_t (&ds)[kSteps][4]) {
    // Lane l gives row l % 8 of matrix l / 8: matrices are (keys 0 - 7, 8 - 15) of (rows 0 - 7), then of (8 -
    // 15).
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, chunk = warp_ * 2 + lane_ / 8 % 2;
    const uint32_t address = shared_address(memory_.ds[tile_ % C::kDsBuffers][warpgroup_]) +
                             row * kPanelRowBytes + (chunk ^ (row & 7)) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      stmatrix_x4_trans(address + step * 16 * kPanelRowBytes, ds[step][0], ds[step][1], ds[step][2],
                        ds[step][3]);
    fence_proxy_async();
  }

  // Both warpgroups' ds is stored.
  __device__ __forceinline__ void meet() {
    bar_sync<128 * C::kWarpgroups>(1 + stream_);
  }

  __device__ __forceinline__ static void pin_dq(float (&dq)[C::kDqOfWarpgroup][kDq]) {
#pragma unroll
    for (int i = 0; i < C::kDqOfWarpgroup; ++i) pin_registers(dq[i]);
  }

  __device__ __forceinline__ void add_dq(const float (&dq)[C::kDqOfWarpgroup][kDq], int slot) {
    const int tile = state_.note[slot].dq_tile, mine = warp_ * C::kDqColumns * 16 + lane_ * 4;
    if constexpr (C::kBulk) {
      mbarrier_wait(state_.dq_empty[warpgroup_], dq_parity_ ^ 1);
      dq_parity_ ^= 1;
      const uint32_t address = shared_address(memory_.dq[warpgroup_]) + mine * sizeof(float);
#pragma unroll
      for (int i = 0; i < kDq / 4; ++i)
        st_shared_v4(address + i * 128 * sizeof(float), dq[0][4 * i], dq[0][4 * i + 1], dq[0][4 * i + 2],
                     dq[0][4 * i + 3]);
      if (warp_ == 0 && lane_ == 0) {
        state_.dq_tile[warpgroup_] = tile;
        if constexpr (C::kOrdered) state_.dq_turn[warpgroup_] = state_.turn[slot];
      }
      fence_proxy_async();
      release(state_.dq_full[warpgroup_]);
    } else {
      float* sum = params_.dq +
                   (int64_t{tile} * C::kDqProducts + warpgroup_ * C::kDqOfWarpgroup) * C::kDqFloats + mine;
#pragma unroll
      for (int j = 0; j < C::kDqOfWarpgroup; ++j)
#pragma unroll
        for (int i = 0; i < kDq / 4; ++i)
          red_add_v4(sum + j * C::kDqFloats + i * 128, dq[j][4 * i], dq[j][4 * i + 1], dq[j][4 * i + 2],
                     dq[j][4 * i + 3]);
    }
  }

  __device__ __forceinline__ void end_dq() {
    mbarrier_wait(state_.dq_empty[warpgroup_], dq_parity_ ^ 1);
    if (warp_ == 0 && lane_ == 0) state_.dq_tile[warpgroup_] = -1;
    release(state_.dq_full[warpgroup_]);
  }

  // ---- an item's end
  // ---------------------------------------------------------------------------------------

  __device__ __forceinline__ void write_dk_dv(const float (&dk)[kDkv], const float (&dv)[kDkv],
                                              const Place& place) const {
    const float scale = params_.scale;
    if (params_.dkv != nullptr) {
      add_dk_dv(dk, dv, place);
      return;
    }
    const int head = place.key_tile / params_.key_tiles;
    const int key = (place.key_tile - head * params_.key_tiles) * C::kKeys + key_;
    if (params_.fp32_output) {
      write_gradient<float>(dk, scale, params_.dk, key, head);
      write_gradient<float>(dv, 1.0f, params_.dv, key, head);
    } else {
      write_gradient<Element>(dk, scale, params_.dk, key, head);
      write_gradient<Element>(dv, 1.0f, params_.dv, key, head);
    }
  }

  // In fp32, to those of the other items of the same keys; in the order of the parts, where order matters.
  __device__ __forceinline__ void add_dk_dv(const float (&dk)[kDkv], const float (&dv)[kDkv],
                                            const Place& place) const {
    int32_t* turn = params_.dkv_turn + int64_t{place.key_tile} * C::kWarpgroups + warpgroup_;
    if constexpr (C::kOrdered) {
      if (warp_ == 0 && lane_ == 0)
        while (ld_acquire(turn) != place.part) {
        }
      bar_sync<128>(3 + warpgroup_);
    }
    const float scale = params_.scale;
    float* sum = params_.dkv + int64_t{place.key_tile} * 2 * C::kKeys * C::kHeadDim +
                 (warpgroup_ * 4 + warp_) * 16 * C::kHeadDim + lane_ * 4;
#pragma unroll
    for (int i = 0; i < kDkv / 4; ++i) {
      red_add_v4(sum + i * 128, scale * dk[4 * i], scale * dk[4 * i + 1], scale * dk[4 * i + 2],
                 scale * dk[4 * i + 3]);
      red_add_v4(sum + C::kKeys * C::kHeadDim + i * 128, dv[4 * i], dv[4 * i + 1], dv[4 * i + 2],
                 dv[4 * i + 3]);
    }
    if constexpr (C::kOrdered) {
      __threadfence();
      bar_sync<128>(3 + warpgroup_);
      if (warp_ == 0 && lane_ == 0) st_release(turn, place.part + 1);
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
  BackwardStreamMemory<C>& memory_;
  BackwardStreamState<C>& state_;
  const int stream_, warpgroup_, warp_, lane_;
  const int key_;  // of the tile: the first of the thread's two
  uint32_t dq_parity_ = 0;
  BackwardRing<C::kQStages> q_;
  uint32_t tile_ = 0, item_ = 0;  // how many are done with: the places in the other rings, in few registers
};

// ---- the kernel ------------------------------------------------------------------------------------------

template <class C>
__device__ void init_backward_barriers(BackwardStreamState<C>& state) {
  const auto ring = [](Mbarrier* full, Mbarrier* empty, int size) {
    for (int i = 0; i < size; ++i) {
      mbarrier_init(full[i], 1);
      mbarrier_init(empty[i], C::kConsumerWarps);
    }
  };
  ring(state.q_full, state.q_empty, C::kQStages);
  ring(state.do_full, state.do_empty, C::kDoStages);
  ring(state.k_full, state.k_empty, C::kKBuffers);
  ring(state.v_full, state.v_empty, C::kVBuffers);
  for (int i = 0; i < C::kWarpgroups; ++i) {
    mbarrier_init(state.dq_full[i], 4);  // the warps of a warpgroup
    mbarrier_init(state.dq_empty[i], 1);
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
    for (int i = 0; i < C::kStreams; ++i) init_backward_barriers<C>(shared.state[i]);
    fence_mbarrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    if (warp < C::kStreams) {
      BackwardLoader<C>(params, shared.memory[warp], shared.state[warp], lane)
          .run(blockIdx.x * C::kStreams + warp, gridDim.x * C::kStreams);
    } else if (C::kBulk && warp <= C::kWarpgroups) {
      if (lane == 0) send_dq<C>(params, shared.memory[0], shared.state[0], warp - 1);
    }
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    const int stream = (warpgroup - 1) / C::kWarpgroups;
    BackwardConsumer<C>(params, shared.memory[stream], shared.state[stream], stream,
                        (warpgroup - 1) % C::kWarpgroups, threadIdx.x % 128)
        .run();
  }
}

}  // namespace longspan::sm90
