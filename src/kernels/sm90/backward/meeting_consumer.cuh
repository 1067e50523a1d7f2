// A consumer warpgroup that meets the other one in each tile, where ds of both is stored. In two streams each
// has items of its own, and its warps meet.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/consumer.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardMeetingConsumer : BackwardConsumer<C> {
  using Base = BackwardConsumer<C>;
  using Base::kDkv, Base::kScores, Base::kDq, Base::kSteps;
  using Base::params_, Base::state_, Base::products_, Base::exit_, Base::gradients_;
  using Base::stream_, Base::lane_, Base::q_, Base::tile_, Base::item_;
  using typename Base::Element, typename Base::Note;

 public:
  using Base::Base;

  __device__ __forceinline__ void run() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];

    Note note = this->wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const BackwardPlace place = this->place_of(q_.slot);
      int accumulate = 0, ends;
      this->wait_k();
      this->wait_v();
      do {
        const int slot = q_.slot;
        ends = note.flags & kItemEnds;
        products_.scores(s, slot);
        float4 minus_lse[kSteps];
        if constexpr (C::kEarlyLse) load_stats(minus_lse, state_.stats[slot][0], lane_);
        this->wait_do();
        products_.dp(dp, this->do_slot());
        wgmma_wait_group<1>();
        pin_registers(s);
        if constexpr (!C::kEarlyLse) load_stats(minus_lse, state_.stats[slot][0], lane_);
        scale_scores(s, e, minus_lse, params_.scale_log2);
        if (note.code <= 0) this->mask(e, note, slot);
        exponentiate(e);
        pack<Element>(e, p);
        products_.template dv<0, C::kDvStepsAhead>(dv, p, this->do_slot(), accumulate);
        wgmma_wait_group<1>();
        pin_registers(dp);
        if (ends) this->release_v();
        if constexpr (C::kPackedP) {
          differentiate<Element, kStatsStride>(p, dp, stats_of(state_.stats[slot][1], lane_), ds);
        } else {
          float4 delta[kSteps];
          load_stats(delta, state_.stats[slot][1], lane_);
          differentiate<Element>(e, dp, delta, ds);
        }
        this->store_ds(this->ds_buffer(), ds);
        if constexpr (C::kDvStepsAhead < kSteps)
          products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, this->do_slot(), accumulate);
        fence_proxy_async();                    // ds, for the tensor cores
        if constexpr (C::kDqOfWarpgroup > 1) {  // dq takes as many registers as p, dp and more
          wgmma_wait_group<0>();
          pin_registers(dv);
          pin_registers(p);
        }
        meet();
        products_.dq(dq, this->ds_buffer());
        products_.dk(dk, ds, slot, accumulate);
        wgmma_wait_group<1>();
        pin_registers(dv);
        this->pin_dq(dq);
        pin_registers(p);
        this->release(state_.do_empty[this->do_slot()]);
        ++tile_;
        if (ends) this->release(state_.k_empty), ++item_;
        q_.advance();
        note = this->wait_q();  // after the release of K, whose buffer the next item may need
        add_dq(dq, slot);
        wgmma_wait_group<0>();
        pin_registers(dk);
        pin_registers(ds);
        this->release_q(slot);
        accumulate = 1;
      } while (!ends);
      gradients_.write(dk, dv, place, exit_);
    }
    if constexpr (C::kBulk) exit_.end();
  }

 private:
  // Until ds of both warpgroups is stored.
  __device__ __forceinline__ void meet() { bar_sync<128 * C::kWarpgroups>(1 + stream_); }

  __device__ __forceinline__ void add_dq(const float (&dq)[C::kDqOfWarpgroup][kDq], int slot) {
    if constexpr (C::kBulk) {
      exit_.stage(dq, state_.job[slot]);
    } else if constexpr (C::kKeepsTurns) {
      const int32_t tile = this->read_once(state_.note[slot].dq_tile);
      mbarrier_wait(state_.turn_come[0], (tile_ - 1) % 2);
      const int turn = this->read_once(state_.turn[0]);
      if (turn == 0)
        exit_.template add<true>(dq, tile);
      else if (turn > 0)
        exit_.template add<false>(dq, tile);
      this->release(state_.dq_added[0]);
    } else {
      exit_.template add<false>(dq, this->read_once(state_.note[slot].dq_tile));
    }
  }
};

}  // namespace longspan::sm90
