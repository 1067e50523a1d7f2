// The forward kernel's load warp, which walks the tile map and feeds the rings, and its store warp.
#pragma once

#include <cstdint>

#include "kernels/sm90/forward_config.cuh"
#include "kernels/sm90/forward_params.h"

namespace longspan::sm90 {

// ---- the load warp ---------------------------------------------------------------------------------------

struct WorkItem {
  MapRow row;
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
  item.row = MapRow{raw.x, static_cast<uint32_t>(raw.y), raw.z, 0};
  return item;
}

// Entries `first` .. `first + 31` of an item, one a lane.
__device__ __forceinline__ MapEntry fetch_entry(const ForwardParams& params, const WorkItem& item, int first,
                                                int lane) {
  MapEntry entry;
  if (item.valid && first + lane < item.row.entries) {
    const int2 raw = __ldg(reinterpret_cast<const int2*>(params.entries + item.row.first_entry +
                                                         static_cast<uint32_t>(first + lane)));
    entry = MapEntry{raw.x, raw.y};
  }
  return entry;
}

template <class C>
class Loader {
 public:
  __device__ Loader(const ForwardParams& params, StreamSharedMemory<C>& memory, StreamBarriers<C>& barriers,
                    int lane)
      : params_(params), memory_(memory), barriers_(barriers), lane_(lane) {}

  // The item, its first entries, and the index of the item after the next are fetched one item ahead each, so
  // that no item begins with a chain of loads.
  __device__ void run(int worker, int workers) {
    workers_ = workers;
    WorkItem item = fetch_work_item(params_, worker);
    MapEntry entries = fetch_entry(params_, item, 0, lane_);
    WorkItem next = fetch_work_item(params_, broadcast(take()));
    int after = take();
    while (item.valid) {
      const MapEntry next_entries = fetch_entry(params_, next, 0, lane_);
      const WorkItem after_next = fetch_work_item(params_, broadcast(after));
      after = take();
      load_item(item, entries);
      item = next;
      entries = next_entries;
      next = after_next;
    }
    finish(workers);
  }

 private:
  // The number of the next item, known to lane 0 alone until it is broadcast: nobody waits for it before.
  __device__ int take() { return lane_ == 0 ? atomicAdd(params_.counters, 1) + workers_ : 0; }
  static __device__ int broadcast(int value) { return __shfl_sync(0xffffffff, value, 0); }

  __device__ void load_item(const WorkItem& item, MapEntry batch) {
    constexpr TileCut kWhole(C::kSteps, 0, 0);
    constexpr TileCut kNothing(1, 0xffff, 0);
    kv_head_ = item.unit / params_.units_per_kv;
    token_ = item.row.row_tile * params_.rows_per_tile;
    head_ = item.unit << params_.log2_pack;
    first_tile_ = kFirstTile;
    if (item.row.entries == 0) load_tile(0, kNothing, 0);  // of a row tile that sees no key
    for (int done = 0; done < item.row.entries; done += kEntryBatch) {
      const MapEntry ahead = fetch_entry(params_, item, done + kEntryBatch, lane_);
      const int count = min(kEntryBatch, item.row.entries - done);
      for (int i = 0; i < count; ++i) {
        const int column = __shfl_sync(0xffffffff, batch.column, i);
        const int code = __shfl_sync(0xffffffff, batch.code, i);
        for (int t = 0; t < code; ++t) load_tile(column + t * C::kColumns, kWhole, 0);
        if (code < 0) {
          ++i;
          const int cut = __shfl_sync(0xffffffff, batch.column, i);
          const int first_layer = __shfl_sync(0xffffffff, batch.code, i);
          load_tile(column, TileCut(static_cast<uint32_t>(cut)), first_layer);
        }
      }
      batch = ahead;
    }
  }

  __device__ void load_q() {
    Mbarrier& full = barriers_.q_full[q_.slot];
    mbarrier_wait(barriers_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.item[q_.slot] = ItemNote{token_, head_, 0, 0};
      mbarrier_arrive_expect_tx(full, C::kWarpgroups * C::kQBytes);
      for (int w = 0; w < C::kWarpgroups; ++w)
        cp_async_bulk_tensor_load(shared_address(memory_.q[q_.slot][w]), params_.q, full, 0, head_,
                                  token_ + w * (64 >> params_.log2_pack), 0, CachePolicy::kEvictFirst);
    }
    __syncwarp();
    q_.advance();
  }

  __device__ void fill(uint8_t* slot, const CUtensorMap& map, Mbarrier& full, int column, int head) {
    mbarrier_arrive_expect_tx(full, C::kKvBytes);
    cp_async_bulk_tensor_load(shared_address(slot), map, full, 0, column, 0, head, CachePolicy::kEvictLast);
  }

  // K of this tile, then V of the one before it: the order in which the consumers need them.
  __device__ void load_tile(int column, TileCut cut, int first_layer) {
    mbarrier_wait(barriers_.k_empty[k_.slot], k_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[k_.slot] = {TileCut(cut.bits | first_tile_), first_layer};
      fill(memory_.k[k_.slot], params_.k, barriers_.k_full[k_.slot], column, kv_head_);
    }
    __syncwarp();
    k_.advance();
    // An item's q comes after its first tile of k: the consumers may look at that tile before they have
    // written what waits in the buffer of q.
    if (first_tile_) load_q();
    first_tile_ = 0;
    load_pending_v();
    pending_column_ = column;
    pending_head_ = kv_head_;
  }

  __device__ void load_pending_v() {
    if (pending_column_ < 0) return;
    mbarrier_wait(barriers_.v_empty[v_.slot], v_.parity ^ 1);
    if (lane_ == 0)
      fill(memory_.v[v_.slot], params_.v, barriers_.v_full[v_.slot], pending_column_, pending_head_);
    __syncwarp();
    v_.advance();
  }

  // Tells the other warps that there is no more work; the last worker of the grid leaves the counters at
  // zero.
  __device__ void finish(int workers) {
    load_pending_v();
    mbarrier_wait(barriers_.k_empty[k_.slot], k_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[k_.slot] = TileNote{TileCut(kEndOfWork), 0};
      mbarrier_arrive(barriers_.k_full[k_.slot]);
    }
    mbarrier_wait(barriers_.q_empty[q_.slot], q_.parity ^ 1);  // not before the consumers know
    if (lane_ == 0) {
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
  int workers_ = 0;
  int kv_head_ = 0;
  int token_ = 0, head_ = 0;  // of the item, the first of each
  uint32_t first_tile_ = 0;
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
