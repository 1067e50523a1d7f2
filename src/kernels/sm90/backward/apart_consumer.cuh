// A consumer warpgroup that computes its share of a tile's dq behind ds of the item's next tile. So it need
// not meet the other one, and the products of one fill the gaps of the other. An item's last dq has no other
// product beside it.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/consumer.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardApartConsumer : BackwardConsumer<C> {
  using Base = BackwardConsumer<C>;
  using Base::kDkv, Base::kScores, Base::kDq, Base::kSteps;
  using Base::params_, Base::state_, Base::products_, Base::exit_, Base::gradients_;
  using Base::warpgroup_, Base::warp_, Base::lane_, Base::q_, Base::tile_, Base::item_;
  using typename Base::Element, typename Base::Note;

 public:
  using Base::Base;

  __device__ __forceinline__ void run() {
    float dk[kDkv], dv[kDkv];
    Note note = this->wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const BackwardPlace place = this->place_of(q_.slot);
      this->wait_k();
      this->wait_v();
      int ends = note.flags & kItemEnds;
      note = tile<false>(dk, dv, note, ends);
      while (!ends) {
        ends = note.flags & kItemEnds;
        note = tile<true>(dk, dv, note, ends);
      }
      float dq[C::kDqOfWarpgroup][kDq];
      wait_ds();
      products_.dq(dq, this->ds_buffer() ^ 1);
      wgmma_wait_group<0>();
      this->pin_dq(dq);
      this->release(state_.k_empty);
      ++item_;
      exit_.stage(dq, state_.held_job[warpgroup_]);
      gradients_.write(dk, dv, place, exit_);
      note = this->wait_q();
    }
    exit_.end();
  }

 private:
  // A tile, and dq of the one before it in the item. Returns the note of the item's next tile.
  template <bool kHasBefore>
  __device__ __forceinline__ Note tile(float (&dk)[kDkv], float (&dv)[kDkv], const Note& note, int ends) {
    float s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];
    const int slot = q_.slot;
    constexpr int kAccumulate = kHasBefore ? 1 : 0;
    float4 minus_lse[kSteps];
    load_stats(minus_lse, state_.stats[slot][0], lane_);
    products_.scores(s, slot);
    this->wait_do();
    products_.dp(dp, this->do_slot());
    wgmma_wait_group<1>();
    pin_registers(s);
    scale_scores(s, e, minus_lse, params_.scale_log2);
    if (note.code <= 0) this->mask(e, note, slot);
    exponentiate(e);
    pack<Element>(e, p);
    products_.template dv<0, C::kDvStepsAhead>(dv, p, this->do_slot(), kAccumulate);
    wgmma_wait_group<1>();
    pin_registers(dp);
    if (ends) this->release_v();
    differentiate<Element, kStatsStride>(p, dp, stats_of(state_.stats[slot][1], lane_), ds);
    if constexpr (kHasBefore) wait_ds();
    this->store_ds(this->ds_buffer(), ds);
    fence_proxy_async();
    if constexpr (kHasBefore) products_.dq(dq, this->ds_buffer() ^ 1);
    products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, this->do_slot(), kAccumulate);
    products_.dk(dk, ds, slot, kAccumulate);
    if constexpr (kHasBefore) {
      wgmma_wait_group<2>();
      this->pin_dq(dq);
    }
    this->release(state_.ds_full[this->ds_buffer()]);
    if constexpr (kHasBefore) exit_.stage(dq, state_.held_job[warpgroup_]);
    if (warp_ == 0 && lane_ == 0) state_.held_job[warpgroup_] = state_.job[slot];
    wgmma_wait_group<1>();
    pin_registers(dv);
    pin_registers(p);
    this->release(state_.do_empty[this->do_slot()]);
    const Note next = this->next_note(ends);
    wgmma_wait_group<0>();
    pin_registers(dk);
    pin_registers(ds);
    this->release_q(slot);
    ++tile_;
    q_.advance();
    return next;
  }

  // Until both warpgroups have stored ds of the tile before, and computed dq of the one before that, from the
  // other buffer.
  __device__ __forceinline__ void wait_ds() const {
    mbarrier_wait(state_.ds_full[this->ds_buffer() ^ 1], (tile_ - 1) / C::kDsBuffers % 2);
  }
};

}  // namespace longspan::sm90
