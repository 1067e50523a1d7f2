// The forward kernel's load warp, which walks the tile map and feeds the rings, and its store warp.
#pragma once

#include <cstdint>

#include "kernels/sm90/forward_config.cuh"
#include "kernels/sm90/forward_params.h"

namespace longspan::sm90 {

// ---- the load warp ---------------------------------------------------------------------------------------

struct WorkItem {
  WorkRow row;
  int32_t unit = 0;
  bool valid = false;
};

__device__ __forceinline__ WorkItem fetch_work_item(const ForwardParams& params, int index) {
  WorkItem item;
  item.valid = index < params.items;
  if (!item.valid) return item;
  const int per_section = params.section_units * params.row_tiles;
  const int section = index / per_section;
  const int inside = index - section * per_section;
  const int first_unit = section * params.section_units;
  const int units = min(params.section_units, params.units - first_unit);
  const int position = inside / units;
  item.unit = first_unit + (inside - position * units);
  const int64_t base =
      params.per_head_masks ? int64_t{item.unit / params.units_per_kv} * params.row_tiles : 0;
  const int4 raw = __ldg(reinterpret_cast<const int4*>(params.work + base + position));
  item.row = WorkRow{raw.x, static_cast<uint32_t>(raw.y), raw.z, 0};
  return item;
}

// Runs `first` .. `first + 31` of an item, one a lane.
__device__ __forceinline__ DeviceRun fetch_run(const ForwardParams& params, const WorkItem& item, int first,
                                               int lane) {
  DeviceRun run;
  if (item.valid && first + lane < item.row.runs) {
    const int2 raw = __ldg(reinterpret_cast<const int2*>(params.runs + item.row.first_run +
                                                         static_cast<uint32_t>(first + lane)));
    run = DeviceRun{raw.x, raw.y};
  }
  return run;
}

template <class C>
class Loader {
 public:
  __device__ Loader(const ForwardParams& params, StreamSharedMemory<C>& memory, StreamBarriers<C>& barriers,
                    int lane)
      : params_(params), memory_(memory), barriers_(barriers), lane_(lane) {}

  // The item, its first runs, and the index of the item after the next are fetched one item ahead each, so
  // that no item begins with a chain of loads.
  __device__ void run(int worker, int workers) {
    WorkItem item = fetch_work_item(params_, worker);
    DeviceRun runs = fetch_run(params_, item, 0, lane_);
    WorkItem next = fetch_work_item(params_, take(workers));
    int after = take(workers);
    while (item.valid) {
      const DeviceRun next_runs = fetch_run(params_, next, 0, lane_);
      const WorkItem after_next = fetch_work_item(params_, after);
      after = take(workers);
      load_item(item, runs);
      item = next;
      runs = next_runs;
      next = after_next;
    }
    finish(workers);
  }

 private:
  __device__ int take(int workers) {
    int index = 0;
    if (lane_ == 0) index = atomicAdd(params_.counters, 1) + workers;
    return __shfl_sync(0xffffffff, index, 0);
  }

  __device__ void load_item(const WorkItem& item, DeviceRun batch) {
    kv_head_ = item.unit / params_.units_per_kv;
    load_q(item.row.row_tile * params_.rows_per_tile, item.unit << params_.log2_pack);
    first_tile_ = kFirstTile;
    if (item.row.runs == 0) load_tile(0, 0, 0);  // nothing is visible: one tile, wholly masked
    for (int done = 0; done < item.row.runs; done += 32) {
      if (done > 0) batch = fetch_run(params_, item, done, lane_);
      const int count = min(32, item.row.runs - done);
      for (int i = 0; i < count; ++i) {
        const int column = __shfl_sync(0xffffffff, batch.column, i);
        const int code = __shfl_sync(0xffffffff, batch.code, i);
        if (code < 0) {
          load_tile(column, code, 0);
        } else {
          for (int t = 0; t < code; ++t) {
            const int begin = column + t * C::kColumns;
            const int limit = params_.tokens_kv - begin;  // keys past the last are not visible
            load_tile(begin, limit < C::kColumns ? 0 : 1, limit);
          }
        }
      }
    }
  }

  __device__ void load_q(int token, int head) {
    Mbarrier& full = barriers_.q_full[q_.slot];
    mbarrier_wait(barriers_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.item[q_.slot] = ItemNote{token, head, 0, 0};
      mbarrier_arrive_expect_tx(full, C::kWarpgroups * C::kQBytes);
      for (int w = 0; w < C::kWarpgroups; ++w)
        cp_async_bulk_tensor_load(shared_address(memory_.q[q_.slot][w]), params_.q, full, 0, head,
                                  token + w * (64 >> params_.log2_pack), 0, CachePolicy::kEvictFirst);
    }
    __syncwarp();
    q_.advance();
  }

  // K of this tile, then V of the one before it: the order in which the consumers need them.
  __device__ void load_tile(int column, int code, int limit) {
    mbarrier_wait(barriers_.k_empty[k_.slot], k_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[k_.slot] = TileNote{code, first_tile_ | (code == 0 ? limit << 8 : 0)};
      mbarrier_arrive_expect_tx(barriers_.k_full[k_.slot], C::kKvBytes);
      cp_async_bulk_tensor_load(shared_address(memory_.k[k_.slot]), params_.k, barriers_.k_full[k_.slot], 0,
                                column, 0, kv_head_, CachePolicy::kEvictLast);
    }
    __syncwarp();
    k_.advance();
    first_tile_ = 0;
    load_pending_v();
    pending_column_ = column;
    pending_head_ = kv_head_;
  }

  __device__ void load_pending_v() {
    if (pending_column_ < 0) return;
    mbarrier_wait(barriers_.v_empty[v_.slot], v_.parity ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(barriers_.v_full[v_.slot], C::kKvBytes);
      cp_async_bulk_tensor_load(shared_address(memory_.v[v_.slot]), params_.v, barriers_.v_full[v_.slot], 0,
                                pending_column_, 0, pending_head_, CachePolicy::kEvictLast);
    }
    __syncwarp();
    v_.advance();
  }

  // Tells the other warps that there is no more work; the last worker of the grid leaves the counters at
  // zero.
  __device__ void finish(int workers) {
    load_pending_v();
    mbarrier_wait(barriers_.k_empty[k_.slot], k_.parity ^ 1);
    mbarrier_wait(barriers_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[k_.slot] = TileNote{0, kEndOfWork};
      mbarrier_arrive(barriers_.k_full[k_.slot]);
      barriers_.item[q_.slot] = ItemNote{0, 0, 1, 0};
      mbarrier_arrive(barriers_.q_full[q_.slot]);
      __threadfence();
      if (atomicAdd(params_.counters + 1, 1) == workers - 1) {
        params_.counters[0] = 0;
        params_.counters[1] = 0;
      }
    }
  }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
  int lane_;
  int kv_head_ = 0;
  int first_tile_ = 0;
  int pending_column_ = -1, pending_head_ = 0;
  RingPosition<C::kQBuffers> q_;
  RingPosition<C::kKStages> k_;
  RingPosition<C::kVStages> v_;
};

// ---- the store warp --------------------------------------------------------------------------------------

template <class C>
__device__ void store_outputs(const ForwardParams& params, StreamSharedMemory<C>& memory,
                              StreamBarriers<C>& barriers, int lane) {
  for (RingPosition<C::kQBuffers> q;; q.advance()) {
    mbarrier_wait(barriers.q_full[q.slot], q.parity);
    const ItemNote item = barriers.item[q.slot];
    if (item.end) break;
    mbarrier_wait(barriers.o_full[q.slot], q.parity);
    if (lane == 0) {
      if (params.o_f32 == nullptr) {
        for (int w = 0; w < C::kWarpgroups; ++w)
          cp_async_bulk_tensor_store(params.o, shared_address(memory.q[q.slot][w]), 0, item.head,
                                     item.token + w * (64 >> params.log2_pack), 0);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read();
      }
      mbarrier_arrive(barriers.q_empty[q.slot]);
    }
    __syncwarp();
  }
  if (lane == 0) cp_async_bulk_wait_group();
}

}  // namespace longspan::sm90
