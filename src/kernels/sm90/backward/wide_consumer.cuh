// One of the three consumer warpgroups of tiles of 192 keys, at head_dim 64 (kernel.cuh has the timeline).
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/consumer.cuh"

namespace longspan::sm90 {

// All rings have a slot for each warpgroup, so one position serves for all of them, and the warpgroup whose
// number is a tile's slot computes its dq.
template <class C>
class BackwardWideConsumer : BackwardConsumer<C> {
  using Base = BackwardConsumer<C>;
  using Base::kDkv, Base::kScores, Base::kDq, Base::kSteps;
  using Base::params_, Base::memory_, Base::state_, Base::products_, Base::exit_, Base::gradients_;
  using Base::warpgroup_, Base::lane_, Base::q_, Base::item_;
  using typename Base::Element, typename Base::Note;
  static_assert(C::kQStages == 3 && C::kDoStages == 3 && C::kDsBuffers == 3 && C::kWarpgroups == 3);

 public:
  using Base::Base;

  __device__ __forceinline__ void run() {
    float dk[kDkv], dv[kDkv];
    Note note = this->wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const BackwardPlace place = this->place_of(q_.slot);
      this->wait_k();
      this->wait_v();
#pragma unroll
      for (int i = 0; i < kDkv; ++i) dk[i] = dv[i] = 0;
      int ends = note.flags & kItemEnds;
      note = this->skips(note, warpgroup_) ? skip<false>(ends) : tile<false, true>(dk, dv, note, ends);
      while (!ends) {
        ends = note.flags & kItemEnds;
        if (this->skips(note, warpgroup_))
          note = has_dq() ? skip<true>(ends) : skip<false>(ends);
        else if (note.code > 0)
          note = has_dq() ? tile<true, false>(dk, dv, note, ends) : tile<false, false>(dk, dv, note, ends);
        else
          note = has_dq() ? tile<true, true>(dk, dv, note, ends) : tile<false, true>(dk, dv, note, ends);
      }
      if (has_dq()) {
        float dq[1][kDq];
        wait_ds();
        products_.dq(dq, slot_before());
        wgmma_wait_group<0>();
        finish_dq(dq);
      }
      this->release(state_.k_empty);
      ++item_;
      gradients_.write(dk, dv, place, exit_);
      note = this->wait_q();
    }
    exit_.end();
  }

 private:
  // A tile, and with kHasDq dq of the one before it in the item. Returns the note of the item's next tile.
  // A key of a masked tile may be seen by few rows, over whose ds roundings do not average out: there ds is
  // rounded once less.
  template <bool kHasDq, bool kMayBeMasked>
  __device__ __forceinline__ Note tile(float (&dk)[kDkv], float (&dv)[kDkv], const Note& note, int ends) {
    float s[kScores], e[kScores], dp[kScores], dq[1][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];
    float4 minus_lse[kSteps], delta[kSteps];
    const int slot = q_.slot;
    load_stats(minus_lse, state_.stats[slot][0], lane_);
    products_.scores(s, slot);
    mbarrier_wait(state_.do_full[slot], q_.parity);
    products_.dp(dp, slot);
    wgmma_wait_group<1>();
    pin_registers(s);
    scale_scores(s, e, minus_lse, params_.scale_log2);
    if (kMayBeMasked && note.code <= 0) this->mask(e, note, slot);
    exponentiate(e);
    pack<Element>(e, p);
    products_.template dv<0, C::kDvStepsAhead>(dv, p, slot, 1);
    wgmma_wait_group<1>();
    pin_registers(dp);
    if (ends) this->release_v();
    load_stats(delta, state_.stats[slot][1], lane_);
    if constexpr (kMayBeMasked) {
      unpack<Element>(p, e);
      differentiate<Element>(e, dp, delta, ds);
    } else {
      differentiate<Element, 1>(p, dp, delta, ds);
    }
    mbarrier_wait(state_.ds_empty[slot], q_.parity ^ 1);
    this->store_ds(slot, ds);
    // The next tile of another warpgroup waits for this ds. That leaves time to issue the products before the
    // fence, but not where dq's product waits for the others.
    if constexpr (kHasDq) {
      hand_over_ds(slot);
      wait_ds();
      products_.dq(dq, slot_before());
    }
    products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, slot, 1);
    products_.dk(dk, ds, slot, 1);
    if constexpr (kHasDq) {
      wgmma_wait_group<2>();
      finish_dq(dq);
    } else {
      hand_over_ds(slot);
    }
    const Note next = this->next_note(ends);
    wgmma_wait_group<1>();
    pin_registers(dv);
    pin_registers(p);
    this->release(state_.do_empty[slot]);
    wgmma_wait_group<0>();
    pin_registers(dk);
    pin_registers(ds);
    this->release_q(slot);
    q_.advance();
    return next;
  }

  // A tile whose rows see none of this warpgroup's keys, and with kHasDq dq of the one before it. Returns the
  // note of the item's next tile.
  template <bool kHasDq>
  __device__ __forceinline__ Note skip(int ends) {
    const int slot = q_.slot;
    mbarrier_wait(state_.ds_empty[slot], q_.parity ^ 1);
    this->store_no_ds(slot);
    hand_over_ds(slot);
    if constexpr (kHasDq) {
      float dq[1][kDq];
      wait_ds();
      products_.dq(dq, slot_before());
      wgmma_wait_group<0>();
      finish_dq(dq);
    }
    mbarrier_wait(state_.do_full[slot], q_.parity);  // its phases must not be passed over
    this->release(state_.do_empty[slot]);
    if (ends) this->release_v();
    const Note next = this->next_note(ends);
    this->release_q(slot);
    q_.advance();
    return next;
  }

  __device__ __forceinline__ void finish_dq(float (&dq)[1][kDq]) {
    this->pin_dq(dq);
    this->release(state_.ds_empty[slot_before()]);
    exit_.hand_out(dq, job_before());
  }

  __device__ __forceinline__ const DqJob& job_before() const {
    const int place = job_place<C>(q_);
    return state_.job[(place == 0 ? C::kJobs : place) - 1];
  }
  __device__ __forceinline__ int slot_before() const {
    return (q_.slot == 0 ? C::kQStages : q_.slot) - 1;
  }
  // Whether this warpgroup computes dq of the tile before.
  __device__ __forceinline__ bool has_dq() const {
    return slot_before() == warpgroup_;
  }

  __device__ __forceinline__ void hand_over_ds(int slot) {
    fence_proxy_async();
    this->release(state_.ds_full[slot]);
  }
  // Until all warpgroups have stored ds of the tile before.
  __device__ __forceinline__ void wait_ds() const {
    mbarrier_wait(state_.ds_full[slot_before()], q_.parity ^ (q_.slot == 0 ? 1 : 0));
  }
};

}  // namespace longspan::sm90
