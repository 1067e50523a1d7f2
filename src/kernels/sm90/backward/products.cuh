// The five products of a row tile: operands and their places in shared memory. Each is one group of wgmma,
// for which the caller waits.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/isa/wgmma.cuh"

namespace longspan::sm90 {

template <class C>
class BackwardProducts {
 public:
  using Element = typename C::Element;
  using ScoreProduct = SharedWgmma<Element, C::kRows>;
  using DqProduct = SharedWgmma<Element, C::kDqColumns>;
  using DkvProduct = Wgmma<Element, C::kHeadDim>;
  static constexpr int kScores = C::kRows / 2, kDq = C::kDqColumns / 2, kDkv = C::kHeadDim / 2;
  static constexpr int kSteps = C::kRows / 16;

  // `warpgroup` counts within the stream.
  __device__ BackwardProducts(BackwardStreamMemory<C>& memory, int warpgroup)
      : memory_(memory), warpgroup_(warpgroup) {}

  // Transposed: [64 keys of the warpgroup, rows] = k q^T, and v do^T.
  __device__ __forceinline__ void scores(float (&s)[kScores], int q_slot) {
    keys_by_rows(s, memory_.k, memory_.q[q_slot]);
  }
  __device__ __forceinline__ void dp(float (&d)[kScores], int do_slot) {
    keys_by_rows(d, memory_.v, memory_.dout[do_slot]);
  }

  // [64 keys of the warpgroup, head_dim] (+)= p^T do, in steps of 16 rows, and ds^T q.
  template <int kFrom, int kTo>
  __device__ __forceinline__ void dv(float (&d)[kDkv], const uint32_t (&p)[kSteps][4], int do_slot,
                                     int accumulate) {
    weighted_rows<kFrom, kTo>(d, p, memory_.dout[do_slot], accumulate);
  }
  __device__ __forceinline__ void dk(float (&d)[kDkv], const uint32_t (&ds)[kSteps][4], int q_slot,
                                     int accumulate) {
    weighted_rows<0, kSteps>(d, ds, memory_.q[q_slot], accumulate);
  }

  // Over the keys of all warpgroups: [64 rows, head_dim], or this warpgroup's share of the transpose.
  __device__ __forceinline__ void dq(float (&d)[C::kDqOfWarpgroup][kDq], int ds_buffer) {
    wgmma_fence();
    const uint32_t keys = shared_address(memory_.k);
    const uint64_t ds = descriptor_k_major(shared_address(memory_.ds[ds_buffer][0]));
    if constexpr (C::kHalves || C::kTakeTurns) {
      const uint64_t k = descriptor_n_major(keys, C::kKvPanelBytes);
      const uint64_t rows = advance(ds, C::kHalves ? warpgroup_ * (C::kRows / 2) * kPanelRowBytes : 0);
      if constexpr (C::kInRows)
        DqProduct::template set<0, 1>(d[0], rows, k);
      else
        DqProduct::template set<1, 0>(d[0], k, rows);
#pragma unroll
      for (int step = 1; step < C::kKeys / 16; ++step) {
        const uint64_t keys_step = advance(k, step * 16 * kPanelRowBytes);
        const uint64_t rows_step = advance(rows, step / 4 * C::kRowPanelBytes + step % 4 * 32);
        if constexpr (C::kInRows)
          DqProduct::template add<0, 1>(d[0], rows_step, keys_step);
        else
          DqProduct::template add<1, 0>(d[0], keys_step, rows_step);
      }
    } else {
#pragma unroll
      for (int i = 0; i < C::kDqOfWarpgroup; ++i) {
        const uint64_t k = descriptor_n_major(keys + (warpgroup_ * C::kDqOfWarpgroup + i) * C::kKvPanelBytes,
                                              C::kKvPanelBytes);
        DqProduct::template set<1, 0>(d[i], k, ds);
#pragma unroll
        for (int step = 1; step < C::kKeys / 16; ++step)
          DqProduct::template add<1, 0>(d[i], advance(k, step * 16 * kPanelRowBytes),
                                        advance(ds, step / 4 * C::kRowPanelBytes + step % 4 * 32));
      }
    }
    wgmma_commit_group();
  }
  // Over the keys of one warpgroup alone.
  __device__ __forceinline__ void dq_of(float (&d)[C::kDqOfWarpgroup][kDq], int ds_buffer, int warpgroup) {
    static_assert(C::kSkips && !C::kWide);
    wgmma_fence();
    const uint64_t k =
        descriptor_n_major(shared_address(memory_.k) + warpgroup * 64 * kPanelRowBytes, C::kKvPanelBytes);
    const uint64_t ds = descriptor_k_major(shared_address(memory_.ds[ds_buffer][warpgroup]));
    DqProduct::template set<0, 1>(d[0], ds, k);
#pragma unroll
    for (int step = 1; step < 4; ++step)
      DqProduct::template add<0, 1>(d[0], advance(ds, step * 32), advance(k, step * 16 * kPanelRowBytes));
    wgmma_commit_group();
  }

 private:
  // Over head_dim.
  __device__ __forceinline__ void keys_by_rows(float (&d)[kScores], const uint8_t* keys,
                                               const uint8_t* rows) {
    const uint64_t a = descriptor_k_major(shared_address(keys) + warpgroup_ * 64 * kPanelRowBytes);
    const uint64_t b = descriptor_k_major(shared_address(rows));
    wgmma_fence();
    ScoreProduct::template set<0, 0>(d, a, b);
#pragma unroll
    for (int step = 1; step < C::kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, inside = step % 4 * 32;
      ScoreProduct::template add<0, 0>(d, advance(a, panel * C::kKvPanelBytes + inside),
                                       advance(b, panel * C::kRowPanelBytes + inside));
    }
    wgmma_commit_group();
  }
  template <int kFrom, int kTo>
  __device__ __forceinline__ void weighted_rows(float (&d)[kDkv], const uint32_t (&weights)[kSteps][4],
                                                const uint8_t* rows, int accumulate) {
    const uint64_t b = descriptor_n_major(shared_address(rows), C::kRowPanelBytes);
    if constexpr (kFrom == 0) pin_registers(d);  // else they may be in flight
    wgmma_fence();
#pragma unroll
    for (int step = kFrom; step < kTo; ++step)
      DkvProduct::template rs<1>(d, weights[step], advance(b, step * 16 * kPanelRowBytes),
                                 step > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  BackwardStreamMemory<C>& memory_;
  const int warpgroup_;
};

}  // namespace longspan::sm90
