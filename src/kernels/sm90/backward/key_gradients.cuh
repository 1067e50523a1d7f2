// An item's end in a consumer warpgroup: dk and dv go from registers to their tensors, or to fp32 sums if
// several items share the keys.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/dq_exit.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/rows.cuh"
#include "kernels/sm90/row_of_quad.cuh"

namespace longspan::sm90 {

__device__ __forceinline__ BackwardKeyTile key_tile_of(const BackwardParams& params, int kv_head, int tile) {
  const int64_t list = params.per_head_masks ? kv_head : kv_head >= params.first_cut_head;
  const int64_t base = list * params.key_tiles;
  const int4 raw = __ldg(reinterpret_cast<const int4*>(params.key_tile + base + tile));
  return {raw.x, raw.y, raw.z, 0};
}

// Where an item's dk and dv go.
struct BackwardPlace {
  int key_tile;  // kv_head * key_tiles + key tile
  int part;      // of the item
};

template <class C>
class BackwardKeyGradients {
 public:
  using Element = typename C::Element;
  static constexpr int kDkv = C::kHeadDim / 2;  // floats of a thread, each of dk and dv

  // `warpgroup` counts within the stream.
  __device__ BackwardKeyGradients(const BackwardParams& params, BackwardStreamState<C>& state, int stream,
                                  int warpgroup, int warp, int lane)
      : params_(params),
        state_(state),
        stream_(stream),
        warpgroup_(warpgroup),
        warp_(warp),
        lane_(lane),
        key_(warpgroup * 64 + warp * 16 + lane / 4) {}

  // If several items share the keys, all but the last leave their dk and dv in sums. The last one adds its
  // own and writes both gradients.
  __device__ __forceinline__ void write(float (&dk)[kDkv], float (&dv)[kDkv], const BackwardPlace& place,
                                        BackwardDqExit<C>& exit) {
    const int head = place.key_tile / params_.key_tiles, tile = place.key_tile - head * params_.key_tiles;
    const BackwardKeyTile at = key_tile_of(params_, head, tile);
    float scale = params_.scale;
    if (at.parts > 1) {
      const int turn = turn_of(place);
      if (turn < at.parts - 1) {
        if constexpr (C::kInAnyOrder) {
          send_sums(dk, scale, place, 0, turn, exit);
          send_sums(dv, 1.0f, place, 2, turn, exit);
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

 private:
  __device__ __forceinline__ void write_gradient(const float (&d)[kDkv], float factor,
                                                 const GradientView& out, const BackwardKeyTile& at,
                                                 int head) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      Element* row = static_cast<Element*>(out.data) + (at.first + key_ + 8 * r) * out.token_stride +
                     head * out.head_stride + 8 * (lane_ % 4);
#pragma unroll
      for (int j = 0; j < kDkv / 16; ++j) {
        uint32_t words[4];
#pragma unroll
        for (int q = 0; q < 4; ++q)
          words[q] =
              cvt_x2<Element>(factor * d[16 * j + 4 * q + 2 * r], factor * d[16 * j + 4 * q + 2 * r + 1]);
        store_row_of_quad(row + 32 * j, words, lane_, key_ + 8 * r < at.count);
      }
    }
  }

  __device__ __forceinline__ int32_t* parts_of(const BackwardPlace& place) const {
    return params_.parts + int64_t{place.key_tile} * C::kConsumers + warpgroup_;
  }
  // The thread's sums of dk; those of dv are kKeys * kHeadDim floats further.
  __device__ __forceinline__ float* sums_of(const BackwardPlace& place) const {
    return params_.dkv + int64_t{place.key_tile} * 2 * C::kKeys * C::kHeadDim +
           (warpgroup_ * 4 + warp_) * 16 * C::kHeadDim + lane_ * 4;
  }
  // Each warpgroup has a barrier of its own.
  __device__ __forceinline__ void meet_in_warpgroup() const {
    bar_sync<128>(3 + stream_ + warpgroup_);
  }

  // How many items come before this one: by number if order matters, else as they arrive at their ends.
  __device__ __forceinline__ int turn_of(const BackwardPlace& place) {
    if constexpr (C::kOrdered) {
      return place.part;
    } else {
      if (warp_ == 0 && lane_ == 0)
        state_.arrived[warpgroup_] = atomicAdd(parts_of(place), kPartArrived) % kPartAdded;
      meet_in_warpgroup();
      const int turn = state_.arrived[warpgroup_];
      meet_in_warpgroup();  // before the next item's
      return turn;
    }
  }

  // Until dk and dv of `count` items are in the sums.
  __device__ __forceinline__ void wait_for_parts(const BackwardPlace& place, int count) const {
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
  __device__ __forceinline__ void send_sums(const float (&d)[kDkv], float factor, const BackwardPlace& place,
                                            int quarter, int turn, BackwardDqExit<C>& exit) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      exit.template stage_quarter<kDkv / 2>(&d[half * kDkv / 2], factor,
                                            DqJob{kQuarterOfSums, place.key_tile, quarter + half, turn});
  }

  // Adds fp32 sums from registers; in the order of items if that matters.
  __device__ __forceinline__ void add_dk_dv(const float (&dk)[kDkv], const float (&dv)[kDkv],
                                            const BackwardPlace& place, int turn) const {
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
  BackwardStreamState<C>& state_;
  const int stream_, warpgroup_, warp_, lane_;
  const int key_;  // of the tile: the first of the thread's two keys
};

}  // namespace longspan::sm90
