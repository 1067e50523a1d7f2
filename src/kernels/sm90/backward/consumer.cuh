// A consumer warpgroup of the backward kernel (kernel.cuh has the timeline): scores, their gradients, its
// share of dq, and dk and dv, which it holds in registers.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/elementwise.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/products.cuh"
#include "kernels/sm90/backward/rows.cuh"
#include "kernels/sm90/column_bits.cuh"

namespace longspan::sm90 {

__device__ __forceinline__ BackwardKeyTile key_tile_of(const BackwardParams& params, int kv_head, int tile) {
  const int64_t base = params.per_head_masks ? int64_t{kv_head} * params.key_tiles : 0;
  const int4 raw = __ldg(reinterpret_cast<const int4*>(params.key_tile + base + tile));
  return {raw.x, raw.y, raw.z, 0};
}

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
        key_(warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4) {}

  __device__ __forceinline__ void run() {
    if constexpr (C::kApart)
      run_items_apart();
    else
      run_items();
    if constexpr (C::kBulk) end_dq();
  }

 private:
  // Where an item's dk and dv go.
  struct Place {
    int key_tile, part;
  };
  // What threads keep of a note; they read the rest again when they need it.
  struct Note {
    int32_t code, flags;
  };

  __device__ __forceinline__ void run_items() {
    float dk[kDkv], dv[kDkv], s[kScores], e[kScores], dp[kScores], dq[C::kDqOfWarpgroup][kDq];
    uint32_t p[kSteps][4], ds[kSteps][4];

    Note note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const Place place = place_of(q_.slot);
      int accumulate = 0, ends;
      wait_k();
      wait_v();
      do {
        const int slot = q_.slot;
        ends = note.flags & kItemEnds;
        if constexpr (C::kRests) {
          if (warpgroup_ == 1 && note.flags & kUpperRests) {
            note = rest(dq, slot, ends);
            continue;
          }
        }
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
        if constexpr (C::kPackedP)
          differentiate<Element>(p, dp, state_.stats[slot][1], lane_, ds);
        else
          differentiate<Element>(e, dp, state_.stats[slot][1], lane_, ds);
        store_ds(ds);
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
      if constexpr (C::kRests) {
        if (!accumulate) clear(dk), clear(dv);
      }
      write_dk_dv(dk, dv, place);
    }
  }

  // The same with dq's product of a tile during the next tile of the item, so that the warpgroups hardly wait
  // for each other. An item's last one has no other product beside it.
  __device__ __forceinline__ void run_items_apart() {
    float dk[kDkv], dv[kDkv];
    Note note = wait_q();
    while (!(note.flags & kNoMoreWork)) {  // items
      const Place place = place_of(q_.slot);
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
      stage_dq(dq, state_.held_job[warpgroup_]);
      write_dk_dv(dk, dv, place);
      note = wait_q();
    }
  }

  // A tile, and dq of the one before it in the item. Returns the next tile's note.
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
    if constexpr (kHasBefore) {
      wait_ds();
      products_.dq(dq, ds_buffer() ^ 1);
    }
    products_.template dv<0, C::kDvStepsAhead>(dv, p, do_slot(), kAccumulate);
    wgmma_wait_group<kHasBefore ? 2 : 1>();
    pin_registers(dp);
    if (ends) release_v();
    differentiate<Element>(p, dp, state_.stats[slot][1], lane_, ds);
    store_ds(ds);
    fence_proxy_async();
    if constexpr (kHasBefore) {  // the other warpgroup may write where this product reads, once it is told
      wgmma_wait_group<1>();
      pin_dq(dq);
    }
    release(state_.ds_full[ds_buffer()]);
    products_.template dv<C::kDvStepsAhead, kSteps>(dv, p, do_slot(), kAccumulate);
    products_.dk(dk, ds, slot, kAccumulate);
    if constexpr (kHasBefore) stage_dq(dq, state_.held_job[warpgroup_]);
    if (warp_ == 0 && lane_ == 0) state_.held_job[warpgroup_] = state_.job[slot];
    wgmma_wait_group<0>();
    pin_registers(dv);
    pin_registers(dk);
    pin_registers(p);
    pin_registers(ds);
    release(state_.do_empty[do_slot()]);
    release_q(slot);
    ++tile_;
    q_.advance();
    if (ends) return note;
    return wait_q();
  }

  // Until ds of the tile before is stored by both warpgroups.
  __device__ __forceinline__ void wait_ds() const {
    mbarrier_wait(state_.ds_full[ds_buffer() ^ 1], (tile_ - 1) / C::kDsBuffers % 2);
  }

  // ---- waiting and releasing --------------------------------------------------------------------------

  __device__ __forceinline__ Place place_of(int slot) const {
    return {read_once(state_.note[slot].key_tile), read_once(state_.note[slot].flags) >> 16};
  }

  __device__ __forceinline__ Note wait_q() {
    mbarrier_wait(state_.q_full[q_.slot], q_.parity);
    return {read_once(state_.note[q_.slot].code), read_once(state_.note[q_.slot].flags)};
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
  __device__ __forceinline__ void store_ds(const uint32_t (&ds)[kSteps][4]) {
    // Lane l has row l % 8 of matrix l / 8. The matrices are keys 0 - 7 and 8 - 15 of rows 0 - 7, then of
    // rows 8 - 15.
    const uint32_t row = lane_ / 16 * 8 + lane_ % 8, chunk = warp_ * 2 + lane_ / 8 % 2;
    const uint32_t address =
        shared_address(memory_.ds[ds_buffer()][warpgroup_]) + row * kPanelRowBytes + (chunk ^ (row & 7)) * 16;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      stmatrix_x4_trans(address + step * 16 * kPanelRowBytes, ds[step][0], ds[step][1], ds[step][2],
                        ds[step][3]);
  }

  // Until ds of both warpgroups is stored.
  __device__ __forceinline__ void meet() {
    constexpr int kThreads = 128 * C::kWarpgroups;
    if constexpr (C::kRests)
      barrier_sync<kThreads>(1 + stream_);
    else
      bar_sync<kThreads>(1 + stream_);
  }

  __device__ __forceinline__ static void pin_dq(float (&dq)[C::kDqOfWarpgroup][kDq]) {
#pragma unroll
    for (int i = 0; i < C::kDqOfWarpgroup; ++i) pin_registers(dq[i]);
  }

  // Stage dq in shared memory, on the way to its sum. layout.h has both layouts.
  __device__ __forceinline__ void store_dq_rows(const float (&dq)[kDq]) const {
    constexpr uint32_t kRowBytes = C::kDqColumns * sizeof(float);
    const uint32_t row = warp_ * 16 + lane_ / 4, swap = row % 2 * 64;  // dq_chunk_place
    const uint32_t even =
        shared_address(memory_.dq[dq_slot()][warpgroup_]) + row * kRowBytes + lane_ % 4 * 16 + swap;
    const uint32_t odd = even - 2 * swap;
#pragma unroll
    for (int j = 0; j < kDq / 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float* four = &dq[8 * j + 2 * r];
        st_shared_v4((j % 2 == 0 ? even : odd) + j * 64 + r * 8 * kRowBytes, four[0], four[1], four[4],
                     four[5]);
      }
  }
  __device__ __forceinline__ void store_dq_as_held(const float (&dq)[kDq]) const {
    const uint32_t address = shared_address(memory_.dq[dq_slot()][warpgroup_]) +
                             (warp_ * C::kDqColumns * 16 + lane_ * 4) * sizeof(float);
#pragma unroll
    for (int i = 0; i < kDq / 4; ++i)
      st_shared_v4(address + i * 128 * sizeof(float), dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  }

  // Hands dq over to the send warp. Lane 0 of the first warp reads the job.
  __device__ __forceinline__ void stage_dq(const float (&dq)[C::kDqOfWarpgroup][kDq], const DqJob& job) {
    wait_dq();
    if constexpr (C::kInRows)
      store_dq_rows(dq[0]);
    else
      store_dq_as_held(dq[0]);
    if (warp_ == 0 && lane_ == 0) state_.dq_job[warpgroup_][dq_slot()] = job;
    fence_proxy_async();
    release(state_.dq_full[warpgroup_][dq_slot()]);
    ++dq_;
  }

  __device__ __forceinline__ void add_dq(const float (&dq)[C::kDqOfWarpgroup][kDq], int slot) {
    if constexpr (C::kBulk) {
      stage_dq(dq, state_.job[slot]);
    } else {
      float* sum = params_.dq + int64_t{read_once(state_.note[slot].dq_tile)} * C::kRows * C::kHeadDim +
                   warp_ * C::kRows * 16 + lane_ * 4;
      if constexpr (C::kKeepsTurns) {
        mbarrier_wait(state_.turn_come[0], (tile_ - 1) % 2);
        const int turn = read_once(state_.turn[0]);
        if (turn == 0)
          write_dq<true>(dq, sum);
        else if (turn > 0)
          write_dq<false>(dq, sum);
        release(state_.dq_added[0]);
      } else {
        write_dq<false>(dq, sum);
      }
    }
  }

  // Adds to the sum; the first CTA stores.
  template <bool kFirst>
  __device__ __forceinline__ void write_dq(const float (&dq)[C::kDqOfWarpgroup][kDq], float* sum) const {
#pragma unroll
    for (int j = 0; j < C::kDqOfWarpgroup; ++j)
#pragma unroll
      for (int i = 0; i < kDq / 4; ++i) {
        float* to = sum + j * C::kDqFloats + i * 128;
        const float* four = &dq[j][4 * i];
        if constexpr (kFirst)
          store_four(to, four[0], four[1], four[2], four[3]);
        else
          red_add_v4(to, four[0], four[1], four[2], four[3]);
      }
  }

  __device__ __forceinline__ int dq_slot() const {
    return dq_ % C::kDqBuffers;
  }
  __device__ __forceinline__ void wait_dq() {
    mbarrier_wait(state_.dq_empty[warpgroup_][dq_slot()], dq_ / C::kDqBuffers % 2 ^ 1);
  }

  __device__ __forceinline__ void end_dq() {
    wait_dq();
    if (warp_ == 0 && lane_ == 0) state_.dq_job[warpgroup_][dq_slot()].tile = kNoMoreJobs;
    release(state_.dq_full[warpgroup_][dq_slot()]);
  }

  // A tile none of whose rows sees this warpgroup's keys: only its half of dq is left, over the other's
  // keys. It is one function, since a branch between products in flight would make them wait.
  __device__ __forceinline__ Note rest(float (&dq)[C::kDqOfWarpgroup][kDq], int slot, int ends) {
    constexpr uint32_t kNothing[kSteps][4] = {};
    store_ds(kNothing);
    if (ends) release_v();
    fence_proxy_async();
    meet();
    products_.dq(dq, ds_buffer());
    wgmma_wait_group<0>();
    pin_dq(dq);
    release(state_.do_empty[do_slot()]);
    ++tile_;
    if (ends) release(state_.k_empty), ++item_;
    q_.advance();
    const Note next = wait_q();
    add_dq(dq, slot);
    release_q(slot);
    return next;
  }
  __device__ __forceinline__ static void clear(float (&d)[kDkv]) {
#pragma unroll
    for (int i = 0; i < kDkv; ++i) d[i] = 0;
  }

  // ---- an item's end ----------------------------------------------------------------------------------

  // If several items share the keys, all but the last leave their dk and dv in sums. The last one adds its
  // own and writes both gradients.
  __device__ __forceinline__ void write_dk_dv(float (&dk)[kDkv], float (&dv)[kDkv], const Place& place) {
    const int head = place.key_tile / params_.key_tiles, tile = place.key_tile - head * params_.key_tiles;
    const BackwardKeyTile at = key_tile_of(params_, head, tile);
    float scale = params_.scale;
    if (at.parts > 1) {
      const int turn = turn_of(place);
      if (turn < at.parts - 1) {
        if constexpr (C::kInAnyOrder) {
          send_sums(dk, scale, place, 0, turn);
          send_sums(dv, 1.0f, place, 2, turn);
        } else {
          add_dk_dv(dk, dv, place, turn);
        }
        return;
      }
      wait_for_parts(place, turn);
      const float* sums = sums_of(place);
      take_sums(dk, scale, sums);
      take_sums(dv, 1.0f, sums + C::kKeys * C::kHeadDim);
      scale = 1;
    }
    if (params_.fp32_output) {
      write_fp32_gradient(dk, scale, params_.dk, at, head);
      write_fp32_gradient(dv, 1.0f, params_.dv, at, head);
    } else {
      write_gradient(dk, scale, params_.dk, at, head);
      write_gradient(dv, 1.0f, params_.dv, at, head);
    }
  }

  // The four lanes of a quad hold neighbouring elements of a row, two each. They exchange them, so that
  // each lane stores 16 bytes of one of every four chunks, and a quad 64 contiguous bytes.
  __device__ __forceinline__ void write_gradient(const float (&d)[kDkv], float factor,
                                                 const GradientView& out, const BackwardKeyTile& at,
                                                 int head) const {
    const bool odd = lane_ % 2 != 0, upper = lane_ % 4 >= 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool there = key_ + 8 * r < at.count;
      Element* row = static_cast<Element*>(out.data) + (at.first + key_ + 8 * r) * out.token_stride +
                     head * out.head_stride + 8 * (lane_ % 4);
#pragma unroll
      for (int j = 0; j < kDkv / 16; ++j) {
        uint32_t w[4];
#pragma unroll
        for (int q = 0; q < 4; ++q)
          w[q] = cvt_x2<Element>(factor * d[16 * j + 4 * q + 2 * r], factor * d[16 * j + 4 * q + 2 * r + 1]);
        const uint32_t a = __shfl_xor_sync(0xffffffff, upper ? w[0] : w[2], 2);
        const uint32_t b = __shfl_xor_sync(0xffffffff, upper ? w[1] : w[3], 2);
        const uint32_t x0 = upper ? a : w[0], x1 = upper ? b : w[1];  // of the quad's lane `odd`
        const uint32_t y0 = upper ? w[2] : a, y1 = upper ? w[3] : b;  // of lane 2 + `odd`
        const uint32_t u = __shfl_xor_sync(0xffffffff, odd ? x0 : x1, 1);
        const uint32_t v = __shfl_xor_sync(0xffffffff, odd ? y0 : y1, 1);
        if (there) st_global_v4(row + 32 * j, odd ? u : x0, odd ? x1 : u, odd ? v : y0, odd ? y1 : v);
      }
    }
  }

  // ---- several items of the same keys -----------------------------------------------------------------

  __device__ __forceinline__ int32_t* parts_of(const Place& place) const {
    return params_.parts + int64_t{place.key_tile} * 2 + warpgroup_;
  }
  // The thread's sums of dk; those of dv are kKeys * kHeadDim floats further.
  __device__ __forceinline__ float* sums_of(const Place& place) const {
    return params_.dkv + int64_t{place.key_tile} * 2 * C::kKeys * C::kHeadDim +
           (warpgroup_ * 4 + warp_) * 16 * C::kHeadDim + lane_ * 4;
  }
  // Each warpgroup has a barrier of its own.
  __device__ __forceinline__ void meet_in_warpgroup() const {
    bar_sync<128>(3 + stream_ + warpgroup_);
  }

  // How many items come before this one: by number if order matters, else as they arrive at their ends.
  __device__ __forceinline__ int turn_of(const Place& place) {
    if constexpr (C::kOrdered) {
      return place.part;
    } else {
      if (warp_ == 0 && lane_ == 0)
        state_.arrived[warpgroup_] = atomicAdd(parts_of(place), kPartArrived) % kPartAdded;
      meet_in_warpgroup();
      return state_.arrived[warpgroup_];  // valid until the next item, before which all have met
    }
  }

  // Until dk and dv of `count` items are in the sums.
  __device__ __forceinline__ void wait_for_parts(const Place& place, int count) const {
    if (warp_ == 0 && lane_ == 0)
      while (ld_acquire(parts_of(place)) / kPartAdded < count) {
      }
    meet_in_warpgroup();
  }

  __device__ __forceinline__ static void take_sums(float (&d)[kDkv], float factor, const float* sums) {
#pragma unroll
    for (int i = 0; i < kDkv / 4; ++i) {
      const float4 sum = __ldcg(reinterpret_cast<const float4*>(sums + i * 128));
      d[4 * i] = fmaf(d[4 * i], factor, sum.x);
      d[4 * i + 1] = fmaf(d[4 * i + 1], factor, sum.y);
      d[4 * i + 2] = fmaf(d[4 * i + 2], factor, sum.z);
      d[4 * i + 3] = fmaf(d[4 * i + 3], factor, sum.w);
    }
  }

  // Sends fp32 sums the way of dq, in two halves.
  __device__ __forceinline__ void send_sums(const float (&d)[kDkv], float factor, const Place& place,
                                            int quarter, int turn) {
    static_assert(!C::kBulk || 64 * kDkv <= C::kDqFloats, "a quarter is larger than the buffer of dq");
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      wait_dq();
      const uint32_t address = shared_address(memory_.dq[dq_slot()][warpgroup_]) +
                               (warp_ * 8 * C::kHeadDim + lane_ * 4) * sizeof(float);
#pragma unroll
      for (int i = 0; i < kDkv / 8; ++i) {
        const float* four = &d[half * kDkv / 2 + 4 * i];
        st_shared_v4(address + i * 128 * sizeof(float), factor * four[0], factor * four[1], factor * four[2],
                     factor * four[3]);
      }
      if (warp_ == 0 && lane_ == 0)
        state_.dq_job[warpgroup_][dq_slot()] = DqJob{kQuarterOfSums, place.key_tile, quarter + half, turn};
      fence_proxy_async();
      release(state_.dq_full[warpgroup_][dq_slot()]);
      ++dq_;
    }
  }

  // Adds fp32 sums from registers; in the order of items if that matters.
  __device__ __forceinline__ void add_dk_dv(const float (&dk)[kDkv], const float (&dv)[kDkv],
                                            const Place& place, int turn) const {
    float* sums = sums_of(place);
    if (turn == 0) {
      write_sums<true>(dk, params_.scale, sums);
      write_sums<true>(dv, 1.0f, sums + C::kKeys * C::kHeadDim);
    } else {
      wait_for_parts(place, C::kOrdered ? turn : 1);
      write_sums<false>(dk, params_.scale, sums);
      write_sums<false>(dv, 1.0f, sums + C::kKeys * C::kHeadDim);
    }
    __threadfence();
    meet_in_warpgroup();
    if (warp_ == 0 && lane_ == 0) red_add_release(parts_of(place), kPartAdded);
  }
  template <bool kFirst>
  __device__ __forceinline__ static void write_sums(const float (&d)[kDkv], float factor, float* sums) {
#pragma unroll
    for (int i = 0; i < kDkv / 4; ++i) {
      const float a = factor * d[4 * i], b = factor * d[4 * i + 1], c = factor * d[4 * i + 2],
                  e = factor * d[4 * i + 3];
      if constexpr (kFirst)
        store_four(sums + i * 128, a, b, c, e);
      else
        red_add_v4(sums + i * 128, a, b, c, e);
    }
  }

  __device__ __forceinline__ void write_fp32_gradient(const float (&d)[kDkv], float factor,
                                                      const GradientView& out, const BackwardKeyTile& at,
                                                      int head) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (key_ + 8 * r >= at.count) continue;
      float* row = static_cast<float*>(out.data) + (at.first + key_ + 8 * r) * out.token_stride +
                   head * out.head_stride + 2 * (lane_ % 4);
#pragma unroll
      for (int i = 0; i < kDkv / 4; ++i)
        *reinterpret_cast<float2*>(row + 8 * i) =
            make_float2(factor * d[4 * i + 2 * r], factor * d[4 * i + 2 * r + 1]);
    }
  }

  const BackwardParams& params_;
  BackwardStreamMemory<C>& memory_;
  Products products_;
  BackwardStreamState<C>& state_;
  const int stream_, warpgroup_, warp_, lane_;
  const int key_;    // of the tile: the first of the thread's two keys
  uint32_t dq_ = 0;  // tiles of dq that have been handed over
  RingPosition<C::kQStages> q_;
  uint32_t tile_ = 0,
           item_ = 0;  // finished so far; they give the places in the other rings, in few registers
};

}  // namespace longspan::sm90
