// The two consumer warpgroups of the backward kernel above head_dim 128 (large_kernel.cuh has the timeline).
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/elementwise.cuh"
#include "kernels/sm90/backward/key_gradients.cuh"
#include "kernels/sm90/backward/large_config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/column_bits.cuh"
#include "kernels/sm90/row_of_quad.cuh"

namespace longspan::sm90 {

// What both warpgroups do: rings, notes, their share of dq, and the end of an item.
template <class C>
class LargeConsumer {
 public:
  using Element = typename C::Element;

 protected:
  static constexpr int kScores = C::kRows / 2, kSteps = C::kRows / 16;
  using ScoreProduct = SharedWgmma<Element, C::kRows>;

  __device__ LargeConsumer(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                           BackwardStreamState<C>& state, int warpgroup, int thread)
      : params_(params),
        memory_(memory),
        state_(state),
        warpgroup_(warpgroup),
        warp_(thread / 32),
        lane_(thread % 32),
        key_(thread / 32 * 16 + thread % 32 / 4),
        rank_(cluster_ctarank()) {}

  struct Place {
    int key_tile, part;
  };
  struct Note {
    int32_t code, flags;
  };

  __device__ __forceinline__ Place place_of(const Note& note) const {
    return {read_once(state_.note[q_.slot].key_tile), note.flags >> 16};
  }
  __device__ __forceinline__ Note wait_q() {
    mbarrier_wait(state_.q_full[q_.slot], q_.parity);
    const BackwardNote& note = state_.note[q_.slot];
    return {read_once(note.code), read_once(note.flags)};
  }
  // Lane 0 reads: it is the lane that says that the warp has read it.
  __device__ __forceinline__ int32_t read_once(const int32_t& word) const {
    return __shfl_sync(0xffffffff, lane_ == 0 ? word : 0, 0);
  }
  __device__ __forceinline__ void wait_k() { mbarrier_wait(state_.k_full, item_ % 2); }
  __device__ __forceinline__ void wait_v() { mbarrier_wait(state_.v_full, item_ % 2); }
  __device__ __forceinline__ void wait_do() { mbarrier_wait(state_.do_full[do_.slot], do_.parity); }
  __device__ __forceinline__ void release(Mbarrier& empty) {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(empty);
  }
  // Each lane arrives for itself, once it has read its own stats and spans.
  __device__ __forceinline__ void release_q(int slot) { mbarrier_arrive(state_.q_empty[slot]); }

  // d = keys rows^T over the head dimension: [64 keys, rows]. The first kKept steps of the keys lie in
  // registers, and `keys` has the panels behind them.
  template <int kSize, int kKept = 0>
  __device__ __forceinline__ static void keys_by_rows(float (&d)[kScores], const uint8_t* keys,
                                                      const uint8_t* rows,
                                                      const uint32_t (*kept)[4] = nullptr) {
    const uint64_t a = descriptor_k_major(shared_address(keys)), b = descriptor_k_major(shared_address(rows));
    const auto of_rows = [b](int step) { return advance(b, step / 4 * C::kRowPanelBytes + step % 4 * 32); };
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSize / 16 - kKept; ++step) {
      const uint64_t of_keys = advance(a, step / 4 * C::kKvPanelBytes + step % 4 * 32);
      if (step == 0)
        ScoreProduct::template set<0, 0>(d, of_keys, of_rows(kKept + step));
      else
        ScoreProduct::template add<0, 0>(d, of_keys, of_rows(kKept + step));
    }
#pragma unroll
    for (int step = 0; step < kKept; ++step)
      Wgmma<Element, C::kRows>::template rs<0>(d, kept[step], of_rows(step), 1);
    wgmma_commit_group();
  }

  // d (+)= weights rows: [64 keys, head dimension].
  template <int kSize>
  __device__ __forceinline__ void weighted_rows(float (&d)[kSize / 2], const uint32_t (&weights)[kSteps][4],
                                                const uint8_t* rows, int accumulate) {
    const uint64_t b = descriptor_n_major(shared_address(rows), C::kRowPanelBytes);
    pin_registers(d);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      Wgmma<Element, kSize>::template rs<1>(d, weights[step], advance(b, step * 16 * kPanelRowBytes),
                                            step > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  // A panel of dq^T = k^T ds^T over the keys of both CTAs, [64 of head_dim, kCount * 2 rows from `first_row`
  // on]. `tile` counts this CTA's tiles.
  template <int kCount>
  __device__ __forceinline__ void issue_dq(float (&dq)[kCount], int first_row, uint32_t tile) {
    const int buffer = tile % C::kDsBuffers;
    const uint32_t parity = tile / C::kDsBuffers % 2, row_bytes = first_row * kPanelRowBytes;
    mbarrier_wait(state_.ds_full[buffer], parity);
    wgmma_fence();
    multiply_keys<false>(dq, memory_.k + C::dq_panel(rank_, warpgroup_) * C::kKvPanelBytes,
                         memory_.ds[buffer][rank_] + row_bytes);
    mbarrier_wait(state_.other_ds_full[buffer], parity);
    wgmma_fence();
    multiply_keys<true>(dq, memory_.other_k + warpgroup_ * C::kKvPanelBytes,
                        memory_.ds[buffer][rank_ ^ 1] + row_bytes);
    wgmma_commit_group();
  }
  // dq (+)= a panel of k^T times one of ds^T.
  template <bool kAdds, int kCount>
  __device__ __forceinline__ static void multiply_keys(float (&dq)[kCount], const uint8_t* keys,
                                                       const uint8_t* rows) {
    using Product = SharedWgmma<Element, 2 * kCount>;
    const uint64_t k = descriptor_n_major(shared_address(keys), C::kKvPanelBytes);
    const uint64_t ds = descriptor_k_major(shared_address(rows));
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step) {
      const uint64_t a = advance(k, step * 16 * kPanelRowBytes), b = advance(ds, step * 32);
      if (kAdds || step > 0)
        Product::template add<1, 0>(dq, a, b);
      else
        Product::template set<1, 0>(dq, a, b);
    }
  }

  // Leaves dq, laid out as threads hold it, to the send warp, in a place that nobody reads any more.
  template <int kCount>
  __device__ __forceinline__ void stage_dq(const float (&dq)[kCount], uint8_t* to, Mbarrier& full) {
    const uint32_t address = shared_address(to) + (warp_ * 16 * 2 * kCount + lane_ * 4) * sizeof(float);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
      st_shared_v4(address + i * 128 * sizeof(float), dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    fence_proxy_async();
    release(full);
  }

  // Stores four floats of each thread side by side, or adds them.
  template <bool kStores, int kCount>
  __device__ __forceinline__ static void write_fours(const float (&d)[kCount], float factor, float* to) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const float a = factor * d[4 * i], b = factor * d[4 * i + 1], c = factor * d[4 * i + 2],
                  e = factor * d[4 * i + 3];
      if constexpr (kStores)
        store_four(to + i * 128, a, b, c, e);
      else
        red_add_v4(to + i * 128, a, b, c, e);
    }
  }

  // ---- an item's end ----------------------------------------------------------------------------------

  // Writes this warpgroup's dk or dv of the item. If several items share the keys, all but the last leave
  // it in sums: `sums` floats after those of the key tile begin.
  template <int kSize>
  __device__ __forceinline__ void write_gradient(float (&d)[kSize / 2], float scale, const GradientView& out,
                                                 int sums_offset, const Place& place) {
    const int head = place.key_tile / params_.key_tiles, tile = place.key_tile - head * params_.key_tiles;
    BackwardKeyTile at = key_tile_of(params_, head, tile);
    at.first += rank_ * C::kKeys, at.count -= rank_ * C::kKeys;
    if (at.parts > 1) {
      const int64_t of_cta = int64_t{place.key_tile} * 2 + rank_;
      int32_t* const parts = params_.parts + of_cta * 2 + warpgroup_;
      float* const sums = params_.dkv + of_cta * C::kKeys * (C::kHeadDim + C::kHeadDimV) + sums_offset +
                          warp_ * 16 * kSize + lane_ * 4;
      const int turn = turn_of(parts, place);
      if (turn < at.parts - 1) {
        if (turn == 0) {
          write_fours<true>(d, scale, sums);
        } else {
          wait_for_parts(parts, C::kOrdered ? turn : 1);
          write_fours<false>(d, scale, sums);
        }
        __threadfence();
        meet_in_warpgroup();
        if (warp_ == 0 && lane_ == 0) red_add_release(parts, kPartAdded);
        return;
      }
      wait_for_parts(parts, turn);
#pragma unroll
      for (int i = 0; i < kSize / 8; ++i) {
        const float4 sum = __ldcg(reinterpret_cast<const float4*>(sums + i * 128));
        d[4 * i] = fmaf(d[4 * i], scale, sum.x);
        d[4 * i + 1] = fmaf(d[4 * i + 1], scale, sum.y);
        d[4 * i + 2] = fmaf(d[4 * i + 2], scale, sum.z);
        d[4 * i + 3] = fmaf(d[4 * i + 3], scale, sum.w);
      }
      scale = 1;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = key_ + 8 * r < at.count;
      const int64_t row = (at.first + key_ + 8 * r) * out.token_stride + head * out.head_stride;
      if (params_.fp32_output) {
        if (!there) continue;
        float* to = static_cast<float*>(out.data) + row + 2 * (lane_ % 4);
#pragma unroll
        for (int i = 0; i < kSize / 8; ++i)
          *reinterpret_cast<float2*>(to + 8 * i) =
              make_float2(scale * d[4 * i + 2 * r], scale * d[4 * i + 2 * r + 1]);
      } else {
        Element* to = static_cast<Element*>(out.data) + row + 8 * (lane_ % 4);
#pragma unroll
        for (int j = 0; j < kSize / 32; ++j) {
          uint32_t words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            words[i] =
                cvt_x2<Element>(scale * d[16 * j + 4 * i + 2 * r], scale * d[16 * j + 4 * i + 2 * r + 1]);
          store_row_of_quad(to + 32 * j, words, lane_, there);
        }
      }
    }
  }

  __device__ __forceinline__ void meet_in_warpgroup() const {
    bar_sync<128>(1 + warpgroup_);
  }

  // Where this lane stores a chunk of 16 bytes of ds, of the first step's rows.
  __device__ __forceinline__ uint32_t chunk_of_ds() const {
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, chunk = warp_ * 2 + lane_ / 8 % 2;
    return row * kPanelRowBytes + (chunk ^ (row & 7)) * 16;
  }
  // Where P passes from this thread to the same one of the other warpgroup. The same warp will store ds
  // there.
  __device__ __forceinline__ uint4* place_of_p(int buffer, int step) const {
    return reinterpret_cast<uint4*>(memory_.ds[buffer][rank_] + step * 16 * kPanelRowBytes + chunk_of_ds());
  }

  // How many items come before this one: by number if order matters, else as they arrive at their ends.
  __device__ __forceinline__ int turn_of(int32_t* parts, const Place& place) {
    if constexpr (C::kOrdered) {
      return place.part;
    } else {
      if (warp_ == 0 && lane_ == 0) state_.arrived[warpgroup_] = atomicAdd(parts, kPartArrived) % kPartAdded;
      meet_in_warpgroup();
      const int turn = state_.arrived[warpgroup_];
      meet_in_warpgroup();  // before the next item's number is written
      return turn;
    }
  }
  // Until the gradients of `count` items are in the sums.
  __device__ __forceinline__ void wait_for_parts(const int32_t* parts, int count) const {
    if (warp_ == 0 && lane_ == 0)
      while (ld_acquire(parts) / kPartAdded < count) {
      }
    meet_in_warpgroup();
  }

  const BackwardParams& params_;
  BackwardStreamMemory<C>& memory_;
  BackwardStreamState<C>& state_;
  const int warpgroup_, warp_, lane_;
  const int key_;   // of the tile: the first of the thread's two keys
  const int rank_;  // of the CTA in its pair
  RingPosition<C::kQStages> q_;
  RingPosition<C::kDoStages> do_;
  uint32_t tile_ = 0, item_ = 0;  // finished so far; they give the places in the other rings
};

// The first warpgroup: scores, probabilities, dv, and its panel of dq, one tile later.
template <class C>
class ScoreConsumer : LargeConsumer<C> {
  using Base = LargeConsumer<C>;
  using Base::kScores, Base::kSteps, Base::memory_, Base::state_, Base::params_, Base::q_, Base::do_,
      Base::tile_, Base::item_, Base::lane_, Base::warp_, Base::key_, Base::rank_;
  using typename Base::Element, typename Base::Note, typename Base::Place;

 public:
  __device__ ScoreConsumer(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                           BackwardStreamState<C>& state, int thread)
      : Base(params, memory, state, 0, thread) {}

  __device__ __forceinline__ void run() {
    float dv[C::kHeadDimV / 2];
    Note note = this->wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const Place place = this->place_of(note);
      this->wait_k();
      int ends = note.flags & kItemEnds;
      note = tile<false>(dv, note);
      while (!ends) {
        ends = note.flags & kItemEnds;
        note = tile<true>(dv, note);
      }
      float dq[kScores];
      this->issue_dq(dq, 0, tile_ - 1);
      wgmma_wait_group<0>();
      finish_dq(dq);
      this->release(state_.k_empty);
      ++item_;
      this->template write_gradient<C::kHeadDimV>(dv, 1.0f, params_.dv, C::kKeys * C::kHeadDim, place);
      note = this->wait_q();
    }
  }

 private:
  // A tile, and dq of the one before it in the item. Returns the note of the item's next tile.
  template <bool kHasBefore>
  __device__ __forceinline__ Note tile(float (&dv)[C::kHeadDimV / 2], const Note& note) {
    float s[kScores], e[kScores];
    uint32_t p[kSteps][4];
    const int slot = q_.slot;
    this->template keys_by_rows<C::kHeadDim>(s, memory_.k, memory_.q[slot]);
    float4 minus_lse[kSteps];
    load_stats(minus_lse, state_.stats[slot][0], lane_);
    wgmma_wait_group<0>();
    pin_registers(s);
    scale_scores(s, e, minus_lse, params_.scale_log2);
    if (note.code <= 0) mask(e, note, slot);
    this->release_q(slot);
    q_.advance();
    exponentiate(e);
    pack<Element>(e, p);
    hand_over(p);
    this->wait_do();
    float dq[kScores];
    if constexpr (kHasBefore) this->issue_dq(dq, 0, tile_ - 1);
    this->template weighted_rows<C::kHeadDimV>(dv, p, memory_.dout[do_.slot], kHasBefore ? 1 : 0);
    if constexpr (kHasBefore) {  // leaves under dv's product
      wgmma_wait_group<1>();
      finish_dq(dq);
    }
    wgmma_wait_group<0>();
    pin_registers(dv);
    pin_registers(p);
    this->release(state_.dv_done[do_.slot]);
    do_.advance();
    ++tile_;
    return note.flags & kItemEnds ? note : this->wait_q();
  }

  // Of the last finished tile.
  __device__ __forceinline__ void finish_dq(float (&dq)[kScores]) {
    const int buffer = (tile_ - 1) % C::kDsBuffers;
    pin_registers(dq);
    this->release(state_.ds_read[buffer]);
    mbarrier_wait(state_.ds_read[buffer], (tile_ - 1) / C::kDsBuffers % 2);
    this->stage_dq(dq, memory_.ds[buffer][0], state_.first_dq_full[buffer]);
  }

  // To the same thread of the other warpgroup: each lane arrives for itself.
  __device__ __forceinline__ void hand_over(const uint32_t (&p)[kSteps][4]) {
    const int buffer = tile_ % C::kDsBuffers;
    mbarrier_wait(state_.ds_empty[buffer], tile_ / C::kDsBuffers % 2 ^ 1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      *this->place_of_p(buffer, step) = make_uint4(p[step][0], p[step][1], p[step][2], p[step][3]);
    mbarrier_arrive(state_.p_full[buffer]);
  }

  __device__ __forceinline__ void mask(float (&e)[kScores], const Note& note, int slot) const {
    const uint32_t quad_column = 2 * (lane_ % 4);
    ColumnBits bits;
    if (note.code == 0) {
      for (int r = 0; r < 2; ++r)
        bits.add(r, 0, key_ + 8 * r < (note.flags >> 8 & 0xff) ? C::kRows : 0, quad_column);
    } else if (!(~note.code & kManyLayers)) {
      for (int r = 0; r < 2; ++r) {
        const uint32_t span = state_.spans[slot][key_ + 8 * r];
        bits.add(r, span & 0xffff, span >> 16, quad_column);
      }
    } else {
      const DevicePartial partial = params_.partials[~note.code & ~kManyLayers];
      for (int layer = 0; layer < partial.layers; ++layer)
        for (int r = 0; r < 2; ++r) {
          const uint32_t span = __ldg(params_.spans + int64_t{partial.first + layer} * 2 * C::kKeys +
                                      rank_ * C::kKeys + key_ + 8 * r);
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(e);
  }
};

// The second warpgroup: dP, ds, dk, and its panel of dq.
template <class C>
class DifferenceConsumer : LargeConsumer<C> {
  using Base = LargeConsumer<C>;
  using KeptV = uint32_t[C::kVStepsKept > 0 ? C::kVStepsKept : 1][4];  // operands of a product
  using Base::kScores, Base::kSteps, Base::memory_, Base::state_, Base::params_, Base::q_, Base::do_,
      Base::tile_, Base::item_, Base::lane_, Base::warp_, Base::key_, Base::rank_;
  using typename Base::Element, typename Base::Note, typename Base::Place;

 public:
  __device__ DifferenceConsumer(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                                BackwardStreamState<C>& state, int thread)
      : Base(params, memory, state, 1, thread) {}

  __device__ __forceinline__ void run() {
    float dk[C::kHeadDim / 2];
    Note note = this->wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const Place place = this->place_of(note);
      KeptV v;
      load_v(v, place);
      this->wait_v();
      this->wait_k();
      int accumulate = 0, ends;
      do {
        ends = note.flags & kItemEnds;
        note = tile(dk, v, note, accumulate, ends);
        accumulate = 1;
      } while (!ends);
      this->template write_gradient<C::kHeadDim>(dk, params_.scale, params_.dk, 0, place);
    }
  }

 private:
  __device__ __forceinline__ Note tile(float (&dk)[C::kHeadDim / 2], const KeptV& v, const Note& note,
                                       int accumulate, int ends) {
    float dp[kScores], dq[C::kDqRowsOfSecond / 2];
    uint32_t p[kSteps][4], ds[kSteps][4];
    const int slot = q_.slot, buffer = tile_ % C::kDsBuffers;
    this->wait_do();
    this->template keys_by_rows<C::kHeadDimV, C::kVStepsKept>(dp, memory_.v, memory_.dout[do_.slot], v);
    take_over(p);
    wgmma_wait_group<0>();
    pin_registers(dp);
    if (ends) this->release(state_.v_empty);
    differentiate(p, dp, slot, ds);
    __syncwarp();  // all lanes have read p, whose place it takes
    store_ds(ds, buffer);
    fence_proxy_async();  // for the tensor cores
    exchange_ds(buffer);
    this->template weighted_rows<C::kHeadDim>(dk, ds, memory_.q[slot], accumulate);
    this->issue_dq(dq, C::kSharesPanel ? rank_ * C::kDqRowsOfSecond : 0, tile_);
    if (warp_ == 0 && lane_ == 0) mbarrier_arrive_at(state_.ds_read[buffer], rank_ ^ 1);  // of the other CTA
    __syncwarp();
    wgmma_wait_group<1>();
    pin_registers(dk);
    pin_registers(ds);
    // The first warpgroup has read q before, or P would not have come.
    if (lane_ == 0) mbarrier_arrive_at(state_.other_q_empty[slot], rank_ ^ 1);
    this->release_q(slot);
    wgmma_wait_group<0>();
    pin_registers(dq);
    this->release(state_.ds_read[buffer]);
    if (ends) this->release(state_.k_empty), ++item_;
    mbarrier_wait(state_.dv_done[do_.slot], do_.parity);
    this->stage_dq(dq, memory_.dout[do_.slot], state_.second_dq_full[do_.slot]);
    ++tile_;
    q_.advance();
    do_.advance();
    return this->wait_q();
  }

  __device__ __forceinline__ void take_over(uint32_t (&p)[kSteps][4]) {
    const int buffer = tile_ % C::kDsBuffers;
    mbarrier_wait(state_.p_full[buffer], tile_ / C::kDsBuffers % 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 four = *this->place_of_p(buffer, step);
      p[step][0] = four.x, p[step][1] = four.y, p[step][2] = four.z, p[step][3] = four.w;
    }
  }

  // The first panels of this thread's two rows of V, as operands.
  __device__ __forceinline__ void load_v(KeptV& v, const Place& place) const {
    if constexpr (C::kVStepsKept > 0) {
      const int head = place.key_tile / params_.key_tiles, tile = place.key_tile - head * params_.key_tiles;
      const int first = key_tile_of(params_, head, tile).first + rank_ * C::kKeys + key_;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int64_t key = min(first + 8 * r, params_.tokens_kv - 1);  // keys past the last one are masked
        const auto* row =
            reinterpret_cast<const uint32_t*>(params_.v_rows.template row<const Element>(key, head)) +
            lane_ % 4;
#pragma unroll
        for (int step = 0; step < C::kVStepsKept; ++step)
#pragma unroll
          for (int half = 0; half < 2; ++half) v[step][2 * half + r] = __ldg(row + 8 * step + 4 * half);
      }
    }
  }

  // Once the warpgroup has stored ds: for this CTA's products, and to the other CTA.
  __device__ __forceinline__ void exchange_ds(int buffer) {
    this->meet_in_warpgroup();
    if (warp_ == 0 && lane_ == 0) {
      mbarrier_arrive(state_.ds_full[buffer]);
      mbarrier_arrive_expect_tx(state_.other_ds_full[buffer], C::kRowPanelBytes);
      cp_async_bulk_copy_to(shared_address(memory_.ds[buffer][rank_]), C::kRowPanelBytes,
                            state_.other_ds_full[buffer], rank_ ^ 1);
    }
    __syncwarp();
  }

  // ds = p (dp - delta), from p as it is rounded for dv's product.
  __device__ __forceinline__ void differentiate(const uint32_t (&p)[kSteps][4], const float (&dp)[kScores],
                                                int slot, uint32_t (&ds)[kSteps][4]) const {
    const float4* delta = reinterpret_cast<const float4*>(state_.stats[slot][1]) + lane_ % 4;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const float4 d = delta[4 * step];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        const float2 both = unpack_x2<Element>(p[step][i]);
        ds[step][i] = cvt_x2<Element>(both.x * (dp[at] - (i < 2 ? d.x : d.z)),
                                      both.y * (dp[at + 1] - (i < 2 ? d.y : d.w)));
      }
    }
  }

  // As rows of q by keys, for dq's product: see BackwardConsumer::store_ds.
  __device__ __forceinline__ void store_ds(const uint32_t (&ds)[kSteps][4], int buffer) {
    const uint32_t address = shared_address(memory_.ds[buffer][rank_]) + this->chunk_of_ds();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      stmatrix_x4_trans(address + step * 16 * kPanelRowBytes, ds[step][0], ds[step][1], ds[step][2],
                        ds[step][3]);
  }
};

}  // namespace longspan::sm90
