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
  const int per_section = params.section_units * params.key_tiles;
  const int section = min(index / per_section, params.last_section);
  const int inside = index - section * per_section;
  const int first_unit = section * params.section_units;
  const int units = section == params.last_section ? params.units - first_unit : params.section_units;
  const int position = inside / units;
  const int unit = first_unit + (inside - position * units);
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
  __device__ BackwardLoader(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                            BackwardStreamState<C>& state, int lane)
      : params_(params), memory_(memory), state_(state), lane_(lane) {}

  // An item is taken when the one before has three tiles left: early enough to hide the chain of loads that
  // leads to its first tile, and no earlier, since some items are a hundred times as long as others.
  __device__ void run(int worker, int workers) {
    workers_ = workers;
    BackwardItem item = fetch_backward_item(params_, worker);
    DeviceRun runs = fetch_backward_runs(params_, item, 0, lane_);
    while (item.valid) {
      steps_ = 0;
      load_item(item, runs);
      while (steps_ < kStepsAhead) fetch_next();
      item = next_;
      runs = next_runs_;
    }
    finish(workers);
  }

 private:
  static constexpr int kStepsAhead = 3;

  // One step towards the next item, each with the result of the one before.
  __device__ void fetch_next() {
    if (steps_ == 0) {
      if (lane_ == 0) next_index_ = atomicAdd(params_.counters, 1) + workers_;
    } else if (steps_ == 1) {
      next_ = fetch_backward_item(params_, __shfl_sync(0xffffffff, next_index_, 0));
    } else {
      next_runs_ = fetch_backward_runs(params_, next_, 0, lane_);
    }
    ++steps_;
  }

  // The tiles of these runs, one run a lane.
  __device__ static int tiles_of(const DeviceRun& run, int count, int lane) {
    return __reduce_add_sync(0xffffffff, lane < count ? max(run.code, 1) : 0);
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
        const bool last_batch = h == params_.heads_per_item - 1 && done + count == item.runs;
        int left = last_batch ? tiles_of(batch, count, lane_) : kStepsAhead + 1;  // of the item, or more
        for (int i = 0; i < count; ++i) {
          const int row = __shfl_sync(0xffffffff, batch.column, i);
          const int code = __shfl_sync(0xffffffff, batch.code, i);
          const int tiles = max(code, 1);
          for (int t = 0; t < tiles; ++t) {
            const int ends = last_batch && left == 1 ? kItemEnds : 0;
            const int tile_code = code < 0 || limit >= C::kKeys ? code : 0;
            const int tile = params_.descending ? tiles - 1 - t : t;
            fetch_turn(item);
            if (left <= kStepsAhead) fetch_next();
            load_tile(item, item.first_head + h, row + tile * C::kRows, tile_code, limit, ends);
            left -= last_batch;
          }
        }
      }
    }
  }

  // Turns come 32 at a time, one a lane.
  __device__ void fetch_turn(const BackwardItem& item) {
    if constexpr (C::kOrdered) {
      if (walked_ % 32 == 0) turns_ = __ldg(params_.turns + item.first_turn + walked_ + lane_);
      turn_ = __shfl_sync(0xffffffff, turns_, walked_ % 32);
      ++walked_;
    }
  }

  // In the order in which the consumers need them: K, q, V, do.
  __device__ void load_tile(const BackwardItem& item, int head, int row, int code, int limit, int ends) {
    const int key = item.key_tile * C::kKeys;
    if (begins_) {
      load(params_.k, memory_.k[k_.slot], C::kKvBytes, state_.k_full[k_.slot], state_.k_empty[k_.slot],
           k_.parity, key, item.kv_head, CachePolicy::kNormal);
      k_.advance();
    }
    mbarrier_wait(state_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      const int dq_tile = head * params_.row_tiles + row / C::kRows;
      state_.note[q_.slot] = BackwardNote{code, begins_ | ends | (code == 0 ? limit << 8 : 0), dq_tile,
                                          item.kv_head * params_.key_tiles + item.key_tile};
      if constexpr (C::kOrdered) state_.turn[q_.slot] = turn_;
      mbarrier_arrive_expect_tx(state_.q_full[q_.slot], C::kRowBytes + C::kStatsBytes);
      cp_async_bulk_tensor_load(shared_address(memory_.q[q_.slot]), params_.q, state_.q_full[q_.slot], 0, row,
                                0, head, CachePolicy::kNormal);
      cp_async_bulk_load(shared_address(state_.stats[q_.slot]),
                         params_.stats + int64_t{dq_tile} * 2 * C::kRows, C::kStatsBytes,
                         state_.q_full[q_.slot]);
    }
    __syncwarp();
    q_.advance();
    if (begins_) {
      load(params_.v, memory_.v[v_.slot], C::kKvBytes, state_.v_full[v_.slot], state_.v_empty[v_.slot],
           v_.parity, key, item.kv_head, CachePolicy::kNormal);
      v_.advance();
    }
    load(params_.dout, memory_.dout[do_.slot], C::kRowBytes, state_.do_full[do_.slot],
         state_.do_empty[do_.slot], do_.parity, row, head, CachePolicy::kNormal);
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

  // Tells the consumers that there is no more work; the last worker leaves the counters at zero.
  __device__ void finish(int workers) {
    mbarrier_wait(state_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      state_.note[q_.slot] = BackwardNote{0, kNoMoreWork, 0, 0};
      mbarrier_arrive(state_.q_full[q_.slot]);
      __threadfence();
      if (atomicAdd(params_.counters + 1, 1) == workers - 1) {
        params_.counters[0] = 0;
        params_.counters[1] = 0;
      }
    }
  }

  const BackwardParams& params_;
  BackwardStreamMemory<C>& memory_;
  BackwardStreamState<C>& state_;
  int lane_, workers_ = 0;
  BackwardItem next_;
  DeviceRun next_runs_;
  int next_index_ = 0, steps_ = 0;
  int begins_ = 0;
  int walked_ = 0, turns_ = 0, turn_ = 0;  // of the item's tiles; BackwardStore::kOrdered only
  BackwardRing<C::kQStages> q_;
  BackwardRing<C::kDoStages> do_;
  BackwardRing<C::kKBuffers> k_;
  BackwardRing<C::kVBuffers> v_;
};

// ---- the warps that send dq off --------------------------------------------------------------------------

// What has become of a half of a tile of dq.
enum DqState : int32_t { kUntouched = 0, kBeingStored = 1, kStored = 2 };

// True if nobody has come to it before: the caller stores it. Else it is there when this returns.
__device__ __forceinline__ bool claim(int32_t* state) {
  if (ld_acquire(state) != kStored) {
    if (atomicCAS(state, kUntouched, kBeingStored) == kUntouched) return true;
    while (ld_acquire(state) != kStored) {
    }
  }
  fence_proxy_async_all();
  return false;
}

// One lane for each warpgroup's half of every tile.
template <class C>
__device__ void send_dq(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                        BackwardStreamState<C>& state, int warpgroup) {
  for (uint32_t parity = 0;; parity ^= 1) {
    mbarrier_wait(state.dq_full[warpgroup], parity);
    const int tile = state.dq_tile[warpgroup];
    if (tile < 0) break;
    const int64_t half = int64_t{tile} * C::kWarpgroups + warpgroup;
    float* sum = params.dq + half * C::kDqFloats;
    const uint32_t source = shared_address(memory.dq[warpgroup]), bytes = C::kDqFloats * sizeof(float);
    int32_t* turn = params.turn + half;
    int32_t next_turn = -1;  // what others wait for; -1: they do not
    bool stores = false, adds = true;
    if constexpr (C::kOrdered) {
      const int mine = state.dq_turn[warpgroup];
      adds = mine >= 0;
      if (adds) {
        while (ld_acquire(turn) != mine) {
        }
        fence_proxy_async_all();
        next_turn = mine + 1;
        stores = mine == 0;
      }
    } else if constexpr (C::kClaimed) {
      stores = claim(turn);
      if (stores) next_turn = kStored;
    }
    if (stores)
      cp_async_bulk_store(sum, source, bytes);
    else if (adds)
      cp_reduce_async_bulk_add(sum, source, bytes);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read();
    mbarrier_arrive(state.dq_empty[warpgroup]);
    if (next_turn >= 0) {
      cp_async_bulk_wait_group();
      fence_proxy_async_all();
      st_release(turn, next_turn);
    }
  }
  cp_async_bulk_wait_group();
}

}  // namespace longspan::sm90
