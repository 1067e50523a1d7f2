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
        key_(thread / 32 * 16 + thread % 32 / 4) {}

  struct Place {
    int key_tile, part;
  };
  struct Note {
    int32_t code, flags, dq_tile;
  };

  __device__ __forceinline__ Place place_of(const Note& note) const {
    return {read_once(state_.note[q_.slot].key_tile), note.flags >> 16};
  }
  __device__ __forceinline__ Note wait_q() {
    mbarrier_wait(state_.q_full[q_.slot], q_.parity);
    const BackwardNote& note = state_.note[q_.slot];
    return {read_once(note.code), read_once(note.flags), read_once(note.dq_tile)};
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

  // d = a b^T over the head dimension, in panels of 64: [64 keys, rows].
  template <int kSize>
  __device__ __forceinline__ void keys_by_rows(float (&d)[kScores], const uint8_t* keys,
                                               const uint8_t* rows) {
    const uint64_t a = descriptor_k_major(shared_address(keys)), b = descriptor_k_major(shared_address(rows));
    wgmma_fence();
    ScoreProduct::template set<0, 0>(d, a, b);
#pragma unroll
    for (int step = 1; step < kSize / 16; ++step) {
      const uint32_t panel = step / 4, inside = step % 4 * 32;
      ScoreProduct::template add<0, 0>(d, advance(a, panel * C::kKvPanelBytes + inside),
                                       advance(b, panel * C::kRowPanelBytes + inside));
    }
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

  // Panels of dq^T = k^T ds^T from number kFirst on, each [64 of head_dim, rows].
  template <int kFirst, int kCount>
  __device__ __forceinline__ void issue_dq(float (&dq)[kCount][kScores], int buffer) {
    const uint64_t ds = descriptor_k_major(shared_address(memory_.ds[buffer]));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint64_t k =
          descriptor_n_major(shared_address(memory_.k) + (kFirst + i) * C::kKvPanelBytes, C::kKvPanelBytes);
      ScoreProduct::template set<1, 0>(dq[i], k, ds);
#pragma unroll
      for (int step = 1; step < C::kKeys / 16; ++step)
        ScoreProduct::template add<1, 0>(dq[i], advance(k, step * 16 * kPanelRowBytes),
                                         advance(ds, step * 32));
    }
    wgmma_commit_group();
  }
  template <int kCount>
  __device__ __forceinline__ static void pin_dq(float (&dq)[kCount][kScores]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) pin_registers(dq[i]);
  }

  // Leaves dq, laid out as threads hold it, to the send warp: in place of rows that nobody needs any more.
  template <int kCount>
  __device__ __forceinline__ void stage_dq(const float (&dq)[kCount][kScores], uint8_t* rows,
                                           Mbarrier& full) {
    meet_in_warpgroup();  // all four warps are done with the rows
    const uint32_t address = shared_address(rows) + (warp_ * 16 * C::kRows + lane_ * 4) * sizeof(float);
#pragma unroll
    for (int j = 0; j < kCount; ++j)
#pragma unroll
      for (int i = 0; i < kScores / 4; ++i)
        st_shared_v4(address + (j * 64 * C::kRows + i * 128) * sizeof(float), dq[j][4 * i], dq[j][4 * i + 1],
                     dq[j][4 * i + 2], dq[j][4 * i + 3]);
    fence_proxy_async();
    release(full);
  }

  // Adds panels of dq to their sums, laid out as threads hold them. `number` counts this CTA's tiles.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void add_dq(const float (&dq)[kCount][kScores], int dq_tile, uint32_t number) {
    float* sum =
        params_.dq + (int64_t{dq_tile} * C::kHeadDim + kFirst * 64 + warp_ * 16) * C::kRows + lane_ * 4;
    if constexpr (C::kKeepsTurns) {
      mbarrier_wait(state_.turn_come[warpgroup_], number % 2);
      const int turn = read_once(state_.turn[warpgroup_]);
      if (turn == 0)
        write_dq<true>(dq, sum);
      else if (turn > 0)
        write_dq<false>(dq, sum);
      release(state_.dq_added[warpgroup_]);
    } else {
      write_dq<false>(dq, sum);
    }
  }
  template <bool kStores, int kCount>
  __device__ __forceinline__ static void write_dq(const float (&dq)[kCount][kScores], float* sum) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) write_fours<kStores>(dq[j], 1.0f, sum + j * 64 * C::kRows);
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
    const BackwardKeyTile at = key_tile_of(params_, head, tile);
    if (at.parts > 1) {
      int32_t* const parts = params_.parts + int64_t{place.key_tile} * 2 + warpgroup_;
      float* const sums = params_.dkv + int64_t{place.key_tile} * C::kKeys * (C::kHeadDim + C::kHeadDimV) +
                          sums_offset + warp_ * 16 * kSize + lane_ * 4;
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
  const int key_;  // of the tile: the first of the thread's two keys
  RingPosition<C::kQStages> q_;
  RingPosition<C::kDoStages> do_;
  uint32_t tile_ = 0, item_ = 0;  // finished so far; they give the places in the other rings
};

// The first warpgroup: scores, probabilities, dv, and the first panels of dq, one tile later.
template <class C>
class ScoreConsumer : LargeConsumer<C> {
  using Base = LargeConsumer<C>;
  using Base::kScores, Base::kSteps, Base::memory_, Base::state_, Base::params_, Base::q_, Base::do_,
      Base::tile_, Base::item_, Base::lane_, Base::warp_, Base::key_;
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
      int ends = note.flags & kItemEnds, before = note.dq_tile;
      note = tile<false>(dv, note, before);
      while (!ends) {
        ends = note.flags & kItemEnds;
        const int dq_tile = note.dq_tile;
        note = tile<true>(dv, note, before);
        before = dq_tile;
      }
      float dq[C::kDqOfFirst][kScores];
      issue_dq(dq);
      wgmma_wait_group<0>();
      finish_dq(dq, before);
      this->release(state_.k_empty);
      ++item_;
      this->template write_gradient<C::kHeadDimV>(dv, 1.0f, params_.dv, C::kKeys * C::kHeadDim, place);
      note = this->wait_q();
    }
  }

 private:
  // A tile, and dq of the one before it in the item. Returns the note of the item's next tile.
  template <bool kHasBefore>
  __device__ __forceinline__ Note tile(float (&dv)[C::kHeadDimV / 2], const Note& note, int before) {
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
    float dq[C::kDqOfFirst][kScores];
    if constexpr (kHasBefore) issue_dq(dq);
    this->template weighted_rows<C::kHeadDimV>(dv, p, memory_.dout[do_.slot], kHasBefore ? 1 : 0);
    if constexpr (kHasBefore) {  // leaves under dv's product
      wgmma_wait_group<1>();
      finish_dq(dq, before);
    }
    wgmma_wait_group<0>();
    pin_registers(dv);
    pin_registers(p);
    if constexpr (!C::kBulk) this->release(state_.do_empty[do_.slot]);
    do_.advance();
    ++tile_;
    return note.flags & kItemEnds ? note : this->wait_q();
  }

  // dq of the last finished tile.
  __device__ __forceinline__ void issue_dq(float (&dq)[C::kDqOfFirst][kScores]) {
    mbarrier_wait(state_.ds_full[ds_buffer()], (tile_ - 1) / C::kDsBuffers % 2);
    Base::template issue_dq<0>(dq, ds_buffer());
  }
  // Its ds was there, so the other warpgroup has done with its rows of do, too.
  __device__ __forceinline__ void finish_dq(float (&dq)[C::kDqOfFirst][kScores], int dq_tile) {
    this->pin_dq(dq);
    this->release(state_.ds_empty[ds_buffer()]);
    if constexpr (C::kBulk) {
      const int slot = (do_.slot + C::kDoStages - 1) % C::kDoStages;
      this->stage_dq(dq, memory_.dout[slot], state_.dq_full[0][slot]);
    } else {
      this->template add_dq<0>(dq, dq_tile, tile_ - 1);
    }
  }
  __device__ __forceinline__ int ds_buffer() const { return (tile_ - 1) % C::kDsBuffers; }

  // To the same thread of the other warpgroup: each lane arrives for itself.
  __device__ __forceinline__ void hand_over(const uint32_t (&p)[kSteps][4]) {
    const int buffer = tile_ % C::kPBuffers;
    mbarrier_wait(state_.p_empty[buffer], tile_ / C::kPBuffers % 2 ^ 1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      memory_.p[buffer][step][warp_ * 32 + lane_] =
          make_uint4(p[step][0], p[step][1], p[step][2], p[step][3]);
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
          const uint32_t span =
              __ldg(params_.spans + int64_t{partial.first + layer} * C::kKeys + key_ + 8 * r);
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(e);
  }
};

// The second warpgroup: dP, ds, dk, and the other panels of dq.
template <class C>
class DifferenceConsumer : LargeConsumer<C> {
  using Base = LargeConsumer<C>;
  using Base::kScores, Base::kSteps, Base::memory_, Base::state_, Base::params_, Base::q_, Base::do_,
      Base::tile_, Base::item_, Base::lane_, Base::warp_;
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
      this->wait_v();
      this->wait_k();
      int accumulate = 0, ends;
      do {
        ends = note.flags & kItemEnds;
        note = tile(dk, note, accumulate, ends);
        accumulate = 1;
      } while (!ends);
      this->template write_gradient<C::kHeadDim>(dk, params_.scale, params_.dk, 0, place);
    }
  }

 private:
  __device__ __forceinline__ Note tile(float (&dk)[C::kHeadDim / 2], const Note& note, int accumulate,
                                       int ends) {
    float dp[kScores], dq[C::kDqOfSecond][kScores];
    uint32_t p[kSteps][4], ds[kSteps][4];
    const int slot = q_.slot, dq_tile = note.dq_tile, buffer = tile_ % C::kDsBuffers;
    this->wait_do();
    this->template keys_by_rows<C::kHeadDimV>(dp, memory_.v, memory_.dout[do_.slot]);
    take_over(p);
    wgmma_wait_group<0>();
    pin_registers(dp);
    this->release(state_.do_empty[do_.slot]);
    do_.advance();
    if (ends) this->release(state_.v_empty);
    differentiate(p, dp, slot, ds);
    mbarrier_wait(state_.ds_empty[buffer], tile_ / C::kDsBuffers % 2 ^ 1);
    store_ds(ds, buffer);
    fence_proxy_async();  // for the tensor cores
    this->release(state_.ds_full[buffer]);
    const auto issue_dq = [&] {
      mbarrier_wait(state_.ds_full[buffer], tile_ / C::kDsBuffers % 2);
      this->template issue_dq<C::kDqOfFirst>(dq, buffer);
    };
    const auto finish_dq = [&] {
      this->pin_dq(dq);
      this->release(state_.ds_empty[buffer]);
      if (ends) this->release(state_.k_empty), ++item_;
    };
    const auto finish_dk = [&] {
      pin_registers(dk);
      pin_registers(ds);
      this->release_q(slot);
    };
    if constexpr (C::kBulk) {  // dq takes the place of q, which dk needs
      this->template weighted_rows<C::kHeadDim>(dk, ds, memory_.q[slot], accumulate);
      issue_dq();
      wgmma_wait_group<1>();
      finish_dk();
      wgmma_wait_group<0>();
      finish_dq();
      this->stage_dq(dq, memory_.q[slot], state_.dq_full[1][slot]);
    } else {  // dq is added under dk's product
      issue_dq();
      this->template weighted_rows<C::kHeadDim>(dk, ds, memory_.q[slot], accumulate);
      wgmma_wait_group<1>();
      finish_dq();
      this->template add_dq<C::kDqOfFirst>(dq, dq_tile, tile_);
      wgmma_wait_group<0>();
      finish_dk();
    }
    ++tile_;
    q_.advance();
    return this->wait_q();
  }

  __device__ __forceinline__ void take_over(uint32_t (&p)[kSteps][4]) {
    const int buffer = tile_ % C::kPBuffers;
    mbarrier_wait(state_.p_full[buffer], tile_ / C::kPBuffers % 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 four = memory_.p[buffer][step][warp_ * 32 + lane_];
      p[step][0] = four.x, p[step][1] = four.y, p[step][2] = four.z, p[step][3] = four.w;
    }
    mbarrier_arrive(state_.p_empty[buffer]);
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
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, chunk = warp_ * 2 + lane_ / 8 % 2;
    const uint32_t address =
        shared_address(memory_.ds[buffer]) + row * kPanelRowBytes + (chunk ^ (row & 7)) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      stmatrix_x4_trans(address + step * 16 * kPanelRowBytes, ds[step][0], ds[step][1], ds[step][2],
                        ds[step][3]);
  }
};

}  // namespace longspan::sm90
