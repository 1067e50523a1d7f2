// What the consumer warpgroups of the backward kernel have in common: the rings, notes, masks, and ds in
// shared memory. They compute scores, their gradients, dq, and dk and dv, which they hold in registers, and
// differ in how they wait for each other's ds: alternating_consumer.cuh, apart_consumer.cuh,
// meeting_consumer.cuh, wide_consumer.cuh.
// kernel.cuh has the timelines.
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

 protected:
  using Element = typename C::Element;
  using Products = BackwardProducts<C>;
  static constexpr int kScores = Products::kScores, kDq = Products::kDq, kDkv = Products::kDkv;
  static constexpr int kSteps = Products::kSteps;

  // What threads keep of a note; they read the rest again when they need it.
  struct Note {
    int32_t code, flags;
  };

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

  __device__ __forceinline__ static bool skips(const Note& note, int warpgroup) {
    return note.flags & (kFirstSkips << warpgroup);
  }

  // Stores ds of this warpgroup's 64 keys, as rows of q by keys, for dq's product. The last product from this
  // buffer must be complete.
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

  // Zeros in its place.
  __device__ __forceinline__ void store_no_ds(int buffer) {
    const uint32_t address = shared_address(memory_.ds[buffer][warpgroup_]) + (warp_ * 32 + lane_) * 16;
#pragma unroll
    for (uint32_t from = 0; from < C::kRowPanelBytes; from += 128 * 16)
      st_shared_v4(address + from, 0.0f, 0.0f, 0.0f, 0.0f);
  }

  __device__ __forceinline__ static void pin_dq(float (&dq)[C::kDqOfWarpgroup][kDq]) {
#pragma unroll
    for (int i = 0; i < C::kDqOfWarpgroup; ++i) pin_registers(dq[i]);
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
