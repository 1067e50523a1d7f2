// How a consumer warpgroup's share of dq, and sums of dk and dv, leave: staged in shared memory for the send
// warp (sender.cuh), or added from registers, or written to the output.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/rows.cuh"
#include "kernels/sm90/row_of_quad.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardDqExit {
 public:
  static constexpr int kDq = C::kDqColumns / 2;  // floats of a thread in one product

  // `warpgroup` counts within the stream.
  __device__ BackwardDqExit(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                            BackwardStreamState<C>& state, int warpgroup, int warp, int lane)
      : params_(params), memory_(memory), state_(state), warpgroup_(warpgroup), warp_(warp), lane_(lane) {}

  // Hands a tile's dq over to the send warp. Lane 0 of the first warp reads the job.
  __device__ __forceinline__ void stage(const float (&dq)[C::kDqOfWarpgroup][kDq], const DqJob& job) {
    wait();
    if constexpr (C::kInRows)
      store_rows(dq[0]);
    else
      store_as_held(dq[0]);
    if (first_lane()) state_.dq_job[warpgroup_][slot()] = job;
    hand_over();
  }

  // The same where a warpgroup has all of a tile's dq. If no other key tile adds to it, it writes it to the
  // output. Most masks need not read the job.
  __device__ __forceinline__ void hand_out(const float (&dq)[1][kDq], const DqJob& job) {
    if constexpr (C::kWritesDq) {
      if (params_.visited_once != nullptr && job.turn == kOnlyVisit) {
        write_rows(dq[0], job);
        if (C::kPasses && (job.count & kLastOfItem)) stage_end(job);
        return;
      }
    }
    stage(dq, job);
  }

  // Tells the send warp that the item has no more tiles, where it has no dq of the last one.
  __device__ __forceinline__ void stage_end(const DqJob& last) {
    wait();
    if (first_lane()) {
      DqJob& job = state_.dq_job[warpgroup_][slot()];
      job = last;
      job.turn = -1;  // nothing is added
    }
    hand_over();
  }

  // Half of dk or dv, at `half`, as threads hold it: kDq * 2 floats of a thread at most. Each warp has the
  // part of the buffer that its rows of dq have.
  template <int kCount>
  __device__ __forceinline__ void stage_quarter(const float* half, float factor, const DqJob& job) {
    static_assert(!C::kBulk || 128 * kCount <= C::kDqFloats, "a quarter is larger than the buffer of dq");
    wait();
    const uint32_t address = buffer() + (warp_ * (C::kDqFloats / 4) + lane_ * 4) * sizeof(float);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      const float* four = half + 4 * i;
      st_shared_v4(address + i * 128 * sizeof(float), factor * four[0], factor * four[1], factor * four[2],
                   factor * four[3]);
    }
    if (first_lane()) state_.dq_job[warpgroup_][slot()] = job;
    hand_over();
  }

  // Tells the send warp that there is no more.
  __device__ __forceinline__ void end() {
    wait();
    if (first_lane()) state_.dq_job[warpgroup_][slot()].tile = kNoMoreJobs;
    release();
  }

  // Adds from registers to the sum; with kFirst it stores.
  template <bool kFirst>
  __device__ __forceinline__ void add(const float (&dq)[C::kDqOfWarpgroup][kDq], int32_t tile) const {
    float* sum = params_.dq + int64_t{tile} * C::kRows * C::kHeadDim + warp_ * C::kRows * 16 + lane_ * 4;
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

 private:
  __device__ __forceinline__ bool first_lane() const {
    return warp_ == 0 && lane_ == 0;
  }
  __device__ __forceinline__ int slot() const {
    return staged_ % C::kDqBuffers;
  }
  __device__ __forceinline__ uint32_t buffer() const {
    return shared_address(memory_.dq[slot()][warpgroup_]);
  }
  __device__ __forceinline__ void wait() {
    mbarrier_wait(state_.dq_empty[warpgroup_][slot()], staged_ / C::kDqBuffers % 2 ^ 1);
  }
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(state_.dq_full[warpgroup_][slot()]);
  }
  __device__ __forceinline__ void hand_over() {
    fence_proxy_async();
    release();
    ++staged_;
  }

  // layout.h has both layouts.
  __device__ __forceinline__ void store_rows(const float (&dq)[kDq]) const {
    constexpr uint32_t kRowBytes = C::kDqColumns * sizeof(float);
    const uint32_t row = warp_ * 16 + lane_ / 4, swap = row % 2 * 64;  // dq_chunk_place
    const uint32_t even = buffer() + row * kRowBytes + lane_ % 4 * 16 + swap;
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
  // Scaled and rounded, to the output. Lanes have two neighbouring columns of each eight.
  __device__ __forceinline__ void write_rows(const float (&dq)[kDq], const DqJob& job) const {
    using Element = typename C::Element;
    const GradientView& out = params_.dq_rows;
    const int rows = job.count & ~kLastOfItem;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_ * 16 + lane_ / 4 + 8 * r;
      Element* to = static_cast<Element*>(out.data) + int64_t{job.first + row} * out.token_stride +
                    job.tile / params_.row_tiles * out.head_stride + 8 * (lane_ % 4);
#pragma unroll
      for (int j = 0; j < C::kHeadDim / 32; ++j) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* two = &dq[16 * j + 4 * i + 2 * r];
          words[i] = cvt_x2<Element>(params_.scale * two[0], params_.scale * two[1]);
        }
        store_row_of_quad(to + 32 * j, words, lane_, row < rows);
      }
    }
  }
  __device__ __forceinline__ void store_as_held(const float (&dq)[kDq]) const {
    const uint32_t address = buffer() + (warp_ * C::kDqColumns * 16 + lane_ * 4) * sizeof(float);
#pragma unroll
    for (int i = 0; i < kDq / 4; ++i)
      st_shared_v4(address + i * 128 * sizeof(float), dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
  }

  const BackwardParams& params_;
  BackwardStreamMemory<C>& memory_;
  BackwardStreamState<C>& state_;
  const int warpgroup_, warp_, lane_;
  uint32_t staged_ = 0;  // tiles and quarters that have been handed over
};

}  // namespace longspan::sm90
