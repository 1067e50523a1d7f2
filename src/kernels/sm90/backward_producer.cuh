// The backward kernel's load warp, which walks the tile map by columns and feeds the rings, and the warps
// that send dq off.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward_config.cuh"
#include "kernels/sm90/backward_params.h"

namespace longspan::sm90 {

// ---- the load warp ---------------------------------------------------------------------------------------

// A key tile, with the query heads `first_head` .. + heads_per_item of one KV head.
struct BackwardItem {
  int32_t key_tile = 0;
  uint32_t first_run = 0;
  int32_t runs = 0;
  int32_t kv_head = 0, first_head = 0;
  uint32_t first_turn = 0;
  bool valid = false;
};

__device__ __forceinline__ BackwardItem fetch_backward_item(const BackwardParams& params, int index) {
  BackwardItem item;
  item.valid = index < params.items;
  if (!item.valid) return item;
  const int units = params.heads_kv * params.parts;
  const int position = index / units;
  const int unit = index - position * units;
  item.kv_head = unit / params.parts;
  item.first_head = unit * params.heads_per_item;
  const int64_t base = params.per_head_masks ? int64_t{item.kv_head} * params.key_tiles : 0;
  const int4 raw = __ldg(reinterpret_cast<const int4*>(params.work + base + position));
  item.key_tile = raw.x;
  item.first_run = static_cast<uint32_t>(raw.y);
  item.runs = raw.z;
  if (params.first_turn != nullptr) item.first_turn = __ldg(params.first_turn + base + position);
  return item;
}

// Runs `first` .. `first + 31` of an item in the order of the walk, one a lane.
__device__ __forceinline__ DeviceRun fetch_backward_runs(const BackwardParams& params,
                                                         const BackwardItem& item, int first, int lane) {
  DeviceRun run;
  const int number = first + lane;
  if (item.valid && number < item.runs) {
    const int2 raw = __ldg(reinterpret_cast<const int2*>(
        params.runs + item.first_run +
        static_cast<uint32_t>(params.descending ? item.runs - 1 - number : number)));
    run = DeviceRun{raw.x, raw.y};
  }
  return run;
}

template <class C>
class BackwardLoader {
 public:
  __device__ BackwardLoader(const BackwardParams& params, BackwardSharedMemory<C>& shared, int lane)
      : params_(params), shared_(shared), lane_(lane) {}

  // The item, its first runs, and the index of the item after the next are fetched one item ahead each.
  __device__ void run() {
    BackwardItem item = fetch_backward_item(params_, blockIdx.x);
    DeviceRun runs = fetch_backward_runs(params_, item, 0, lane_);
    BackwardItem next = fetch_backward_item(params_, take());
    int after = take();
    while (item.valid) {
      const DeviceRun next_runs = fetch_backward_runs(params_, next, 0, lane_);
      const BackwardItem after_next = fetch_backward_item(params_, after);
      after = take();
      load_item(item, runs);
      item = next;
      runs = next_runs;
      next = after_next;
    }
    finish();
  }

 private:
  __device__ int take() {
    int index = 0;
    if (lane_ == 0) index = atomicAdd(params_.counters, 1) + static_cast<int>(gridDim.x);
    return __shfl_sync(0xffffffff, index, 0);
  }

  __device__ void load_item(const BackwardItem& item, DeviceRun batch) {
    begins_ = kItemBegins;
    const int limit = params_.tokens_kv - item.key_tile * C::kKeys;  // keys past the last are not visible
    if (item.runs == 0) {  // no row sees a key: one tile, wholly masked, leaves zeros
      turn_ = -1;
      load_tile(item, item.first_head, 0, 0, 0, kItemEnds);
      return;
    }
    for (int h = 0; h < params_.heads_per_item; ++h) {
      walked_ = 0;
      for (int done = 0; done < item.runs; done += 32) {
        if (item.runs > 32 && (done > 0 || h > 0)) batch = fetch_backward_runs(params_, item, done, lane_);
        const int count = min(32, item.runs - done);
        for (int i = 0; i < count; ++i) {
          const int row = __shfl_sync(0xffffffff, batch.column, i);
          const int code = __shfl_sync(0xffffffff, batch.code, i);
          const bool last_run = h == params_.heads_per_item - 1 && done + i == item.runs - 1;
          const int tiles = max(code, 1);
          for (int t = 0; t < tiles; ++t) {
            const int ends = last_run && t == tiles - 1 ? kItemEnds : 0;
            const int tile_code = code < 0 || limit >= C::kKeys ? code : 0;
            const int tile = params_.descending ? tiles - 1 - t : t;
            fetch_turn(item);
            load_tile(item, item.first_head + h, row + tile * C::kRows, tile_code, limit, ends);
          }
        }
      }
    }
  }

  // Turns come 32 at a time, one a lane.
  __device__ void fetch_turn(const BackwardItem& item) {
    if constexpr (BackwardSharedMemory<C>::kOrdered) {
      if (walked_ % 32 == 0) turns_ = __ldg(params_.turns + item.first_turn + walked_ + lane_);
      turn_ = __shfl_sync(0xffffffff, turns_, walked_ % 32);
      ++walked_;
    }
  }

  // In the order in which the consumers need them: K, q, V, do.
  __device__ void load_tile(const BackwardItem& item, int head, int row, int code, int limit, int ends) {
    const int key = item.key_tile * C::kKeys;
    if (begins_) {
      load(params_.k, shared_.k[k_.slot], C::kKvBytes, shared_.k_full[k_.slot], shared_.k_empty[k_.slot],
           k_.parity, key, item.kv_head, CachePolicy::kNormal);
      k_.advance();
    }
    mbarrier_wait(shared_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      const int dq_tile = head * params_.row_tiles + row / C::kRows;
      shared_.note[q_.slot] = BackwardNote{code, begins_ | ends | (code == 0 ? limit << 8 : 0), dq_tile,
                                           item.kv_head * params_.key_tiles + item.key_tile};
      if constexpr (BackwardSharedMemory<C>::kOrdered) shared_.turn[q_.slot] = turn_;
      mbarrier_arrive_expect_tx(shared_.q_full[q_.slot], C::kRowBytes + C::kStatsBytes);
      cp_async_bulk_tensor_load(shared_address(shared_.q[q_.slot]), params_.q, shared_.q_full[q_.slot], 0,
                                row, 0, head, CachePolicy::kNormal);
      cp_async_bulk_load(shared_address(shared_.stats[q_.slot]),
                         params_.stats + int64_t{dq_tile} * 2 * C::kRows, C::kStatsBytes,
                         shared_.q_full[q_.slot]);
    }
    __syncwarp();
    q_.advance();
    if (begins_) {
      load(params_.v, shared_.v[v_.slot], C::kKvBytes, shared_.v_full[v_.slot], shared_.v_empty[v_.slot],
           v_.parity, key, item.kv_head, CachePolicy::kNormal);
      v_.advance();
    }
    load(params_.dout, shared_.dout[do_.slot], C::kRowBytes, shared_.do_full[do_.slot],
         shared_.do_empty[do_.slot], do_.parity, row, head, CachePolicy::kNormal);
    do_.advance();
    begins_ = 0;
  }

  __device__ void load(const CUtensorMap& map, const uint8_t* destination, uint32_t bytes, Mbarrier& full,
                       Mbarrier& empty, uint32_t parity, int token, int head, CachePolicy policy) {
    mbarrier_wait(empty, parity ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(full, bytes);
      cp_async_bulk_tensor_load(shared_address(destination), map, full, 0, token, 0, head, policy);
    }
    __syncwarp();
  }

  // Tells the consumers that there is no more work; the last block leaves the counters at zero.
  __device__ void finish() {
    mbarrier_wait(shared_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      shared_.note[q_.slot] = BackwardNote{0, kNoMoreWork, 0, 0};
      mbarrier_arrive(shared_.q_full[q_.slot]);
      __threadfence();
      if (atomicAdd(params_.counters + 1, 1) == static_cast<int>(gridDim.x) - 1) {
        params_.counters[0] = 0;
        params_.counters[1] = 0;
      }
    }
  }

  const BackwardParams& params_;
  BackwardSharedMemory<C>& shared_;
  int lane_;
  int begins_ = 0;
  int walked_ = 0, turns_ = 0, turn_ = 0;  // of the item's tiles; BackwardStore::kOrdered only
  BackwardRing<C::kQStages> q_;
  BackwardRing<C::kDoStages> do_;
  BackwardRing<C::kKBuffers> k_;
  BackwardRing<C::kVBuffers> v_;
};

// ---- the warps that send dq off --------------------------------------------------------------------------

// One lane for each warpgroup's half of every tile.
template <class C>
__device__ void send_dq(const BackwardParams& params, BackwardSharedMemory<C>& shared, int warpgroup) {
  for (uint32_t parity = 0;; parity ^= 1) {
    mbarrier_wait(shared.dq_full[warpgroup], parity);
    const int tile = shared.dq_tile[warpgroup];
    if (tile < 0) break;
    float* sum = params.dq + (int64_t{tile} * C::kConsumers + warpgroup) * C::kDqFloats;
    if constexpr (BackwardSharedMemory<C>::kOrdered) {
      const int mine = shared.dq_turn[warpgroup];
      if (mine >= 0) {
        int32_t* turn = params.turn + int64_t{tile} * C::kConsumers + warpgroup;
        while (ld_acquire(turn) != mine) {
        }
        fence_proxy_async_all();
        cp_reduce_async_bulk_add(sum, shared_address(shared.dq[warpgroup]), C::kDqFloats * sizeof(float));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group();
        fence_proxy_async_all();
        st_release(turn, mine + 1);
      }
    } else {
      cp_reduce_async_bulk_add(sum, shared_address(shared.dq[warpgroup]), C::kDqFloats * sizeof(float));
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read();
    }
    mbarrier_arrive(shared.dq_empty[warpgroup]);
  }
  cp_async_bulk_wait_group();
}

}  // namespace longspan::sm90
