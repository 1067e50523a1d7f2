// A consumer warpgroup that computes dq of every second tile during the item's next one, where sums of dq lie
// in token rows. It passes over tiles in which none of its keys is seen. kernel.cuh has the timeline.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/consumer.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardAlternatingConsumer : BackwardConsumer<C> {
  using Base = BackwardConsumer<C>;
  using Base::kDkv, Base::kScores, Base::kDq, Base::kSteps;
  using Base::params_, Base::state_, Base::products_, Base::exit_, Base::gradients_;
  using Base::warpgroup_, Base::lane_, Base::q_, Base::tile_, Base::item_;
  using typename Base::Element, typename Base::Note;
  static_assert(C::kWarpgroups == 2 && C::kStreams == 1 && C::kDsBuffers == 2 && C::kDqBuffers == 1);

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
      int32_t flags = note.flags;  // of the tile before
      note = this->skips(note, warpgroup_) ? skip<false>(note, 0) : tile<false>(dk, dv, note, 0);
      while (!(flags & kItemEnds)) {
        const Note now = note;
        if (this->skips(now, warpgroup_))
          note = has_dq() ? skip<true>(now, flags) : skip<false>(now, flags);
        else
          note = has_dq() ? tile<true>(dk, dv, now, flags) : tile<false>(dk, dv, now, flags);
        flags = now.flags;
      }
      if (has_dq()) {
        float dq[1][kDq];
        compute_dq(dq, flags);
        wgmma_wait_group<0>();
        this->release(state_.k_empty);
        finish_dq(dq);
      } else {
        this->release(state_.k_empty);
        if (C::kPasses && params_.pass_ctas > 0) exit_.stage_end(job_before());
      }
      ++item_;
      gradients_.write(dk, dv, place, exit_);
      note = this->wait_q();
    }
    exit_.end();
  }

 private:
  // A tile, and with kHasDq dq of the one before it in the item, which has the flags `before`. Returns the
  // note of the item's next tile.
  template <bool kHasDq>
  __device__ __forceinline__ Note tile(float (&dk)[kDkv], float (&dv)[kDkv], const Note& note,
                                       int32_t before) {
    float s[kScores], e[kScores], dp[kScores], dq[1][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];
    const int slot = q_.slot, ends = note.flags & kItemEnds;
    products_.scores(s, slot);
    float4 minus_lse[kSteps];
    load_stats(minus_lse, state_.stats[slot][0], lane_);
    this->wait_do();
    products_.dp(dp, this->do_slot());
    wgmma_wait_group<1>();
    pin_registers(s);
    scale_scores(s, e, minus_lse, params_.scale_log2);
    if (note.code <= 0) this->mask(e, note, slot);
    exponentiate(e);
    pack<Element>(e, p);
    products_.template dv<0, C::kDvStepsAhead>(dv, p, this->do_slot(), 1);
    wgmma_wait_group<1>();
    pin_registers(dp);
    if (ends) this->release_v();
    float4 delta[kSteps];
    load_stats(delta, state_.stats[slot][1], lane_);
    differentiate<Element>(e, dp, delta, ds);
    wait_ds_buffer();
    this->store_ds(this->ds_buffer(), ds);
    products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, this->do_slot(), 1);
    products_.dk(dk, ds, slot, 1);
    hand_over_ds();
    wgmma_wait_group<1>();
    pin_registers(dv);
    pin_registers(p);
    this->release(state_.do_empty[this->do_slot()]);
    if constexpr (kHasDq) compute_dq(dq, before);  // in the registers of p
    const Note next = this->next_note(ends);
    wgmma_wait_group<0>();
    pin_registers(dk);
    pin_registers(ds);
    this->release_q(slot);
    if constexpr (kHasDq) finish_dq(dq);
    q_.advance();
    ++tile_;
    return next;
  }

  // A tile whose rows see none of this warpgroup's keys, and with kHasDq dq of the one before it. Returns the
  // note of the item's next tile.
  template <bool kHasDq>
  __device__ __forceinline__ Note skip(const Note& note, int32_t before) {
    const int slot = q_.slot, ends = note.flags & kItemEnds;
    wait_ds_buffer();
    this->release(state_.ds_full[this->ds_buffer()]);
    if constexpr (kHasDq) {
      float dq[1][kDq];
      compute_dq(dq, before);
      wgmma_wait_group<0>();
      finish_dq(dq);
    }
    this->wait_do();  // its phases must not be passed over
    this->release(state_.do_empty[this->do_slot()]);
    if (ends) this->release_v();
    const Note next = this->next_note(ends);
    this->release_q(slot);
    q_.advance();
    ++tile_;
    return next;
  }

  // dq of the tile before, over the keys that its rows see.
  __device__ __forceinline__ void compute_dq(float (&dq)[1][kDq], int32_t flags) {
    const uint32_t tile = tile_ - 1;
    const int buffer = tile % 2;
    mbarrier_wait(state_.ds_full[buffer], tile / 2 % 2);
    if (flags & kFirstSkips)
      products_.dq_of(dq, buffer, 1);
    else if (flags & (kFirstSkips << 1))
      products_.dq_of(dq, buffer, 0);
    else
      products_.dq(dq, buffer);
  }
  __device__ __forceinline__ void finish_dq(float (&dq)[1][kDq]) {
    this->pin_dq(dq);
    this->release(state_.ds_empty[(tile_ - 1) % 2]);
    exit_.hand_out(dq, job_before());
  }
  // Until dq of the tile before the last one is computed.
  __device__ __forceinline__ void wait_ds_buffer() const {
    mbarrier_wait(state_.ds_empty[this->ds_buffer()], tile_ / 2 % 2 ^ 1);
  }
  // Whether this warpgroup computes dq of the tile before.
  __device__ __forceinline__ bool has_dq() const {
    return (tile_ - 1) % 2 == static_cast<uint32_t>(warpgroup_);
  }
  __device__ __forceinline__ const DqJob& job_before() const {
    const int place = job_place<C>(q_);
    return state_.job[(place == 0 ? C::kJobs : place) - 1];
  }
  __device__ __forceinline__ void hand_over_ds() {
    fence_proxy_async();
    this->release(state_.ds_full[this->ds_buffer()]);
  }
};

}  // namespace longspan::sm90
