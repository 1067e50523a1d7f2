// A consumer warpgroup of the backward kernel (kernel.cuh has the timeline): scores, their gradients, its
// share of dq, and dk and dv, which it holds in registers.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/dq_exit.cuh"
#include "kernels/sm90/backward/elementwise.cuh"
#include "kernels/sm90/backward/key_gradients.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/products.cuh"
#include "kernels/sm90/column_bits.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardConsumer {
 public:
  using Element = typename C::Element;
  using Products = BackwardProducts<C>;
  static constexpr int kScores = Products::kScores, kDq = Products::kDq, kDkv = Products::kDkv;
  static constexpr int kSteps = Products::kSteps;

  // `warpgroup` counts within the stream.
  __device__ BackwardConsumer(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                              BackwardStreamState<C>& state, int stream, int warpgroup, int thread)
      : params_(params),
        memory_(memory),
        products_(memory, warpgroup),
        state_(state),
        stream_(stream),
        warpgroup_(warpgroup),
        warp_(thread / 32),
        lane_(thread % 32),
        key_(warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4),
        exit_(params, memory, state, warpgroup, thread / 32, thread % 32),
        gradients_(params, state, stream, warpgroup, thread / 32, thread % 32) {}

  __device__ __forceinline__ void run() {
    if constexpr (C::kApart)
      run_items_apart();
    else
      run_items();
    if constexpr (C::kBulk) exit_.end();
  }

 protected:
  // What threads keep of a note; they read the rest again when they need it.
  struct Note {
    int32_t code, flags;
  };

  __device__ __forceinline__ void run_items() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];

    Note note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const BackwardPlace place = place_of(q_.slot);
      int accumulate = 0, ends;
      wait_k();
      wait_v();
      do {
        const int slot = q_.slot;
        ends = note.flags & kItemEnds;
        products_.scores(s, slot);
        float4 minus_lse[kSteps];
        if constexpr (C::kEarlyLse) load_stats(minus_lse, state_.stats[slot][0], lane_);
        wait_do();
        products_.dp(dp, do_slot());
        wgmma_wait_group<1>();
        pin_registers(s);
        if constexpr (!C::kEarlyLse) load_stats(minus_lse, state_.stats[slot][0], lane_);
        scale_scores(s, e, minus_lse, params_.scale_log2);
        if (note.code <= 0) mask(e, note, slot);
        exponentiate(e);
        pack<Element>(e, p);
        products_.template dv<0, C::kDvStepsAhead>(dv, p, do_slot(), accumulate);
        wgmma_wait_group<1>();
        pin_registers(dp);
        if (ends) release_v();
        if constexpr (C::kPackedP) {
          differentiate<Element, kStatsStride>(p, dp, stats_of(state_.stats[slot][1], lane_), ds);
        } else {
          float4 delta[kSteps];
          load_stats(delta, state_.stats[slot][1], lane_);
          differentiate<Element>(e, dp, delta, ds);
        }
        store_ds(ds_buffer(), ds);
        if constexpr (C::kDvStepsAhead < kSteps)
          products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, do_slot(), accumulate);
        fence_proxy_async();                    // ds, for the tensor cores
        if constexpr (C::kDqOfWarpgroup > 1) {  // dq takes as many registers as p, dp and more
          wgmma_wait_group<0>();
          pin_registers(dv);
          pin_registers(p);
        }
        meet();
        products_.dq(dq, ds_buffer());
        products_.dk(dk, ds, slot, accumulate);
        wgmma_wait_group<1>();
        pin_registers(dv);
        pin_dq(dq);
        pin_registers(p);
        release(state_.do_empty[do_slot()]);
        ++tile_;
        if (ends) release(state_.k_empty), ++item_;
        q_.advance();
        note = wait_q();  // after the release of K, whose buffer the next item may need
        add_dq(dq, slot);
        wgmma_wait_group<0>();
        pin_registers(dk);
        pin_registers(ds);
        release_q(slot);
        accumulate = 1;
      } while (!ends);
      gradients_.write(dk, dv, place, exit_);
    }
  }

  // The same with dq's product of a tile behind ds of the item's next one. So the warpgroups need not meet,
  // and the products of one fill the gaps of the other. An item's last dq has no other product beside it.
  __device__ __forceinline__ void run_items_apart() {
    float dk[kDkv], dv[kDkv];
    Note note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const BackwardPlace place = place_of(q_.slot);
      wait_k();
      wait_v();
      int ends = note.flags & kItemEnds;
      note = tile_apart<false>(dk, dv, note, ends);
      while (!ends) {
        ends = note.flags & kItemEnds;
        note = tile_apart<true>(dk, dv, note, ends);
      }
      float dq[C::kDqOfWarpgroup][kDq];
      wait_ds();
      products_.dq(dq, ds_buffer() ^ 1);
      wgmma_wait_group<0>();
      pin_dq(dq);
      release(state_.k_empty);
      ++item_;
      exit_.stage(dq, state_.held_job[warpgroup_]);
      gradients_.write(dk, dv, place, exit_);
      note = wait_q();
    }
  }

  // A tile, and dq of the one before it in the item. Returns the note of the item's next tile.
  template <bool kHasBefore>
  __device__ __forceinline__ Note tile_apart(float (&dk)[kDkv], float (&dv)[kDkv], const Note& note,
                                             int ends) {
    float s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];
    const int slot = q_.slot;
    constexpr int kAccumulate = kHasBefore ? 1 : 0;
    products_.scores(s, slot);
    wait_do();
    products_.dp(dp, do_slot());
    wgmma_wait_group<1>();
    pin_registers(s);
    float4 minus_lse[kSteps];
    load_stats(minus_lse, state_.stats[slot][0], lane_);
    scale_scores(s, e, minus_lse, params_.scale_log2);
    if (note.code <= 0) mask(e, note, slot);
    exponentiate(e);
    pack<Element>(e, p);
    products_.template dv<0, C::kDvStepsAhead>(dv, p, do_slot(), kAccumulate);
    wgmma_wait_group<1>();
    pin_registers(dp);
    if (ends) release_v();
    differentiate<Element, kStatsStride>(p, dp, stats_of(state_.stats[slot][1], lane_), ds);
    if constexpr (kHasBefore) wait_ds();
    store_ds(ds_buffer(), ds);
    fence_proxy_async();
    if constexpr (kHasBefore) products_.dq(dq, ds_buffer() ^ 1);
    products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, do_slot(), kAccumulate);
    products_.dk(dk, ds, slot, kAccumulate);
    if constexpr (kHasBefore) {
      wgmma_wait_group<2>();
      pin_dq(dq);
    }
    release(state_.ds_full[ds_buffer()]);
    if constexpr (kHasBefore) exit_.stage(dq, state_.held_job[warpgroup_]);
    if (warp_ == 0 && lane_ == 0) state_.held_job[warpgroup_] = state_.job[slot];
    wgmma_wait_group<1>();
    pin_registers(dv);
    pin_registers(p);
    release(state_.do_empty[do_slot()]);
    const Note next = next_note(ends);
    wgmma_wait_group<0>();
    pin_registers(dk);
    pin_registers(ds);
    release_q(slot);
    ++tile_;
    q_.advance();
    return next;
  }

  // Until both warpgroups have stored ds of the tile before, and computed dq of the one before that, from the
  // other buffer.
  __device__ __forceinline__ void wait_ds() const {
    mbarrier_wait(state_.ds_full[ds_buffer() ^ 1], (tile_ - 1) / C::kDsBuffers % 2);
  }

  // ---- waiting and releasing --------------------------------------------------------------------------

  __device__ __forceinline__ BackwardPlace place_of(int slot) const {
    return {read_once(state_.note[slot].key_tile), read_once(state_.note[slot].flags) >> 16};
  }

  __device__ __forceinline__ Note wait_q() {
    mbarrier_wait(state_.q_full[q_.slot], q_.parity);
    return {read_once(state_.note[q_.slot].code), read_once(state_.note[q_.slot].flags)};
  }
  // The note of the item's next tile; after the last one its own, without a wait: a branch between products
  // in flight would make them wait.
  __device__ __forceinline__ Note next_note(int ends) {
    RingPosition<C::kQStages> next = q_;
    if (!ends) next.advance();
    mbarrier_wait(state_.q_full[next.slot], next.parity);
    return {read_once(state_.note[next.slot].code), read_once(state_.note[next.slot].flags)};
  }
  // Lane 0 reads: it is the lane that says that the warp has read it.
  __device__ __forceinline__ int32_t read_once(const int32_t& word) const {
    return __shfl_sync(0xffffffff, lane_ == 0 ? word : 0, 0);
  }
  __device__ __forceinline__ void wait_k() { mbarrier_wait(state_.k_full, item_ % 2); }
  __device__ __forceinline__ void wait_v() { mbarrier_wait(state_.v_full, item_ % 2); }
  __device__ __forceinline__ void wait_do() {
    mbarrier_wait(state_.do_full[do_slot()], tile_ / C::kDoStages % 2);
  }
  __device__ __forceinline__ int do_slot() const { return tile_ % C::kDoStages; }
  __device__ __forceinline__ int ds_buffer() const { return tile_ % C::kDsBuffers; }

  __device__ __forceinline__ void release(Mbarrier& empty) {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(empty);
  }
  // Each lane arrives for itself, once it has read its own stats and spans.
  __device__ __forceinline__ void release_q(int slot) { mbarrier_arrive(state_.q_empty[slot]); }
  __device__ __forceinline__ void release_v() { release(state_.v_empty); }

  // ---- between the products ---------------------------------------------------------------------------

  __device__ __forceinline__ void mask(float (&e)[kScores], const Note& note, int slot) const {
    const uint32_t quad_column = 2 * (lane_ % 4);
    ColumnBits bits;
    if (note.code == 0) {
      for (int r = 0; r < 2; ++r)
        bits.add(r, 0, key_ + 8 * r < (note.flags >> 8 & 0xff) ? C::kRows : 0, quad_column);
    } else if (C::kSpansArrive && !(~note.code & kManyLayers)) {
      for (int r = 0; r < 2; ++r) {
        const uint32_t span = state_.spans[slot][key_ + 8 * r];
        bits.add(r, span & 0xffff, span >> 16, quad_column);
      }
    } else {
      const int number = ~note.code;
      const DevicePartial partial =
          number & kManyLayers ? params_.partials[number & ~kManyLayers] : DevicePartial{number, 1};
      for (int layer = 0; layer < partial.layers; ++layer)
        for (int r = 0; r < 2; ++r) {
          const uint32_t span =
              __ldg(params_.spans + int64_t{partial.first + layer} * C::kKeys + key_ + 8 * r);
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(e);
  }

  // Stores ds of this warpgroup's 64 keys, as rows of q by keys, for dq's product. The product of the tile
  // before last is complete in both warpgroups, since they have met since, or waited for each other's ds.
  __device__ __forceinline__ void store_ds(int buffer, const uint32_t (&ds)[kSteps][4]) {
    // Lane l has row l % 8 of matrix l / 8. The matrices are keys 0 - 7 and 8 - 15 of rows 0 - 7, then of
    // rows 8 - 15.
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, chunk = warp_ * 2 + lane_ / 8 % 2;
    const uint32_t address =
        shared_address(memory_.ds[buffer][warpgroup_]) + row * kPanelRowBytes + (chunk ^ (row & 7)) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      stmatrix_x4_trans(address + step * 16 * kPanelRowBytes, ds[step][0], ds[step][1], ds[step][2],
                        ds[step][3]);
  }

  // Until ds of both warpgroups is stored.
  __device__ __forceinline__ void meet() {
    bar_sync<128 * C::kWarpgroups>(1 + stream_);
  }

  __device__ __forceinline__ static void pin_dq(float (&dq)[C::kDqOfWarpgroup][kDq]) {
#pragma unroll
    for (int i = 0; i < C::kDqOfWarpgroup; ++i) pin_registers(dq[i]);
  }

  __device__ __forceinline__ void add_dq(const float (&dq)[C::kDqOfWarpgroup][kDq], int slot) {
    if constexpr (C::kBulk) {
      exit_.stage(dq, state_.job[slot]);
    } else if constexpr (C::kKeepsTurns) {
      const int32_t tile = read_once(state_.note[slot].dq_tile);
      mbarrier_wait(state_.turn_come[0], (tile_ - 1) % 2);
      const int turn = read_once(state_.turn[0]);
      if (turn == 0)
        exit_.template add<true>(dq, tile);
      else if (turn > 0)
        exit_.template add<false>(dq, tile);
      release(state_.dq_added[0]);
    } else {
      exit_.template add<false>(dq, read_once(state_.note[slot].dq_tile));
    }
  }

  const BackwardParams& params_;
  BackwardStreamMemory<C>& memory_;
  Products products_;
  BackwardStreamState<C>& state_;
  const int stream_, warpgroup_, warp_, lane_;
  const int key_;  // of the tile: the first of the thread's two keys
  BackwardDqExit<C> exit_;
  BackwardKeyGradients<C> gradients_;
  RingPosition<C::kQStages> q_;
  uint32_t tile_ = 0,
           item_ = 0;  // finished so far; they give the places in the other rings, in few registers
};

}  // namespace longspan::sm90
