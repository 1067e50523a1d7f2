// The forward kernel's load warp, which walks the tile map and fills the ring of K and V, and its row warp,
// which loads q and stores o.
#pragma once

#include <climits>
#include <cstdint>

#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/faults.cuh"
#include "kernels/sm90/forward/params.h"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "kernels/sm90/isa/pair.cuh"

namespace longspan::sm90 {

// ---- the load warp ---------------------------------------------------------------------------------------

struct WorkItem {
  MapRow row;
  int32_t unit = 0;
  bool valid = false;
};

// In a pair `index` numbers pairs of row tiles, unit after unit. If their number is odd, the second CTA goes
// through the last one's keys without a row.
template <class C>
__device__ __forceinline__ WorkItem fetch_work_item(const ForwardParams& params, int index) {
  const WorkOrder& order = params.order;
  const int pairs = (order.row_tiles + 1) / 2;  // of a unit
  WorkItem item;
  item.valid = index < (C::kPaired ? pairs * order.units : order.items());
  if (!item.valid) return item;
  WorkPlace place;
  bool lone = false;
  if constexpr (C::kPaired) {
    place.unit = index / pairs;
    place.position = 2 * (index - place.unit * pairs) + cluster_ctarank();
    lone = place.position == order.row_tiles;
    place.position -= lone;
  } else {
    place = order.place(index);
  }
  item.unit = place.unit;
  const int64_t base =
      params.per_head_masks ? int64_t{item.unit / params.units_per_kv} * params.order.row_tiles : 0;
  const int4 raw = __ldg(reinterpret_cast<const int4*>(params.work + base + place.position));
  item.row = MapRow{raw.x, static_cast<uint32_t>(raw.y), raw.z,
                    static_cast<uint32_t>(raw.w) & ((1u << (32 - kRowBits)) - 1),
                    static_cast<uint32_t>(raw.w) >> (32 - kRowBits)};
  if (lone) item.row.rows = 0;
  return item;
}

// Entries `first` to `first + 31` of an item, one a lane.
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

  __device__ void run(int worker, int workers) {
    index_ = worker;
    workers_ = workers;
    WorkItem item = fetch_work_item<C>(params_, worker);
    MapEntry entries = fetch_entry(params_, item, 0, lane_);
    while (item.valid) {
      looked_up_ = 0;
      load_item(item, entries);
      while (looked_up_ < kLookups) look_up();
      item = next_;
      entries = next_entries_;
    }
    finish();
  }

 private:
  // Finds the next item: its number, its row tile, that tile's first entries. Each step is a dependent
  // load, so one step follows each of the item's last tiles. Not earlier: an item taken long ahead is one
  // that an idle CTA could have taken.
  static constexpr int kLookups = 3, kLookupTiles = 4;
  __device__ void look_up() {
    if (looked_up_ == 0) {
      index_ = take_item();
    } else if (looked_up_ == 1) {
      if constexpr (C::kPaired) index_ = agree_on_number(barriers_.numbers[0], item_ - 1, index_, lane_);
      next_ = fetch_work_item<C>(params_, __shfl_sync(0xffffffff, index_, 0));
    } else {
      next_entries_ = fetch_entry(params_, next_, 0, lane_);
    }
    ++looked_up_;
  }

  // The first `workers` items are handed out without the counter. The kernel before sets it to zero.
  __device__ int take_item() {
    if (lane_ > 0) return 0;
    if (C::kPaired && cluster_ctarank() > 0) return 0;
    if (params_.next_item == nullptr) return INT_MAX;
    griddepcontrol_wait();
    return atomicAdd(params_.next_item, 1) + workers_;
  }

  __device__ void load_item(const WorkItem& item, MapEntry batch) {
    tiles_left_ = static_cast<int>(item.row.cost) / (cost_of_full_tile(C::kPiece) * C::kPieces);
    kv_head_ = item.unit / params_.units_per_kv;
    first_tile_ = kFirstTile;
    const int head = item.unit << params_.log2_pack;
    note_item({item.row.first_row, head << kRowBits | static_cast<int>(item.row.rows), 0});
    // A row tile that sees no key has one tile that is wholly masked.
    const int entries = max(item.row.entries, 1);
    for (int done = 0; done < entries; done += kEntryBatch) {
      const MapEntry ahead = fetch_entry(params_, item, done + kEntryBatch, lane_);
      const int count = min(kEntryBatch, entries - done);
      for (int i = 0; i < count; ++i) {
        const int column = __shfl_sync(0xffffffff, batch.column, i);
        int tiles = __shfl_sync(0xffffffff, batch.code, i), first_layer = 0;
        TileCut cut;
        if (tiles < 0) {
          ++i;
          cut = TileCut(static_cast<uint32_t>(__shfl_sync(0xffffffff, batch.column, i)));
          first_layer = __shfl_sync(0xffffffff, batch.code, i);
        } else if (item.row.entries == 0) {
          cut = TileCut(1, 0xffff, 0);
        }
        const bool is_cut = cut.bits != 0, is_last = done + i + 1 == entries;
        if (is_cut) tiles = 1;
        for (int t = 0; t < tiles;) {
          const bool flush = is_cut && pieces_ > 0;  // gathered pieces do not share a tile with a cut one
          if (!flush) {
            add_piece(column + t * C::kPiece);
            ++t;
          }
          if (is_cut || pieces_ == C::kPieces || (is_last && t == tiles)) {
            const bool noted = C::kLoneQuery && is_last && t == tiles;
            load_tile(is_cut && !flush ? cut : whole(pieces_), noted ? first_layer | kLastTile : first_layer);
          }
        }
      }
      batch = ahead;
    }
  }

  // Lane l loads panel l % kPanels of piece l / kPanels; or lane 0 loads all panels of the only piece.
  __device__ void add_piece(int column) {
    if (C::kPieces == 1 || lane_ / C::kPanels >= pieces_) column_ = column;
    ++pieces_;
  }

  // The cut of a tile of `pieces` pieces that all rows see in full.
  static __device__ TileCut whole(int pieces) {
    constexpr uint32_t kAllSteps = (1u << C::kSteps) - 1;
    const int steps = pieces * (C::kPiece / kStepKeys);
    return TileCut(steps, kAllSteps & ~((1u << steps) - 1), 0);
  }

  // Tells the row warp, and in time the consumers, about the item.
  __device__ void note_item(const ItemNote& note) {
    const uint32_t slot = item_ % C::kItemNotes;
    mbarrier_wait(barriers_.item_empty[slot], item_ / C::kItemNotes % 2 ^ 1);
    if (lane_ == 0) {
      barriers_.item[slot] = note;
      mbarrier_arrive(barriers_.item_full[slot]);
    }
    __syncwarp();
    ++item_;
  }

  // Loads as many keys as are multiplied. Missing pieces repeat the last one, since the slot might hold
  // NaNs.
  template <uint32_t kBytes>
  __device__ void fill(int slot_number, const CUtensorMap& map, int column, int pieces, int head) {
    Mbarrier& full = barriers_.full[slot_number];
    const uint32_t slot = shared_address(memory_.kv) + C::slot_offset(slot_number);
    if constexpr (C::kPaired) {
      if (lane_ != 0) return;
      mbarrier_arrive_expect_tx(full, kBytes);  // from both CTAs
      const int first = cluster_ctarank() * (C::kPanels / 2);
      for (int panel = first; panel < first + C::kPanels / 2; ++panel)
        cp_async_bulk_tensor_multicast_to_pair(slot + panel * C::kKvPanelBytes, map, full, 0, column, panel,
                                               head, CachePolicy::kEvictLast);
    } else if constexpr (C::kPieces == 1) {
      if (lane_ != 0) return;
      mbarrier_arrive_expect_tx(full, kBytes);
      cp_async_bulk_tensor_load(slot, map, full, 0, column, 0, head, CachePolicy::kEvictLast);
    } else {
      const int loads = C::kPanels * pieces;
      if (lane_ == 0) mbarrier_arrive_expect_tx(full, loads * C::kPiecePanelBytes);
      __syncwarp();
      const int piece = lane_ / C::kPanels, panel = lane_ % C::kPanels;
      if (lane_ < loads)
        cp_async_bulk_tensor_load(slot + panel * C::kKvPanelBytes + piece * C::kPiecePanelBytes, map, full, 0,
                                  column, panel, head, CachePolicy::kEvictLast);
    }
  }

  // Loads K of this tile, then V of the tile before: the order in which consumers need them.
  __device__ void load_tile(TileCut cut, int first_layer) {
    constexpr int kNarrowPieces = (C::width(0) + C::kPiece - 1) / C::kPiece;
    const int loaded = cut.steps() * kStepKeys <= C::width(0) ? kNarrowPieces : C::kPieces;
    mbarrier_wait(barriers_.empty[ring_.slot], ring_.parity ^ 1);
    if (lane_ == 0) barriers_.tile[ring_.slot] = {TileCut(cut.bits | first_tile_), first_layer};
    fill<C::kKBytes>(ring_.slot, params_.k, column_, loaded, kv_head_);
    __syncwarp();
    ring_.template advance<kStep>();
    first_tile_ = 0;
    load_pending_v();
    pending_pieces_ = loaded;
    pending_column_ = column_;
    pending_head_ = kv_head_;
    pieces_ = 0;
    if (--tiles_left_ < kLookupTiles && looked_up_ < kLookups) look_up();
  }

  __device__ void load_pending_v() {
    if (pending_pieces_ == 0) return;
    mbarrier_wait(barriers_.empty[v_ring().slot], v_ring().parity ^ 1);
    fill<C::kVBytes>(v_ring().slot, params_.v, pending_column_, pending_pieces_, pending_head_);
    __syncwarp();
    v_ring().template advance<kStep>();
  }
  __device__ RingPosition<C::kSlots>& v_ring() {
    if constexpr (C::kUneven)
      return v_ring_;
    else
      return ring_;
  }

  // Tells the other warps that there is no more work.
  __device__ void finish() {
    mbarrier_wait(barriers_.empty[ring_.slot], ring_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[ring_.slot] = TileNote{TileCut(kEndOfWork), 0};
      mbarrier_arrive(barriers_.full[ring_.slot]);
    }
    __syncwarp();
    ring_.template advance<kStep>();
    load_pending_v();
    note_item({0, 0, 1});
  }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
  int lane_;
  int workers_ = 0;
  int tiles_left_ = 0;  // of the item, approximately
  int looked_up_ = 0, index_ = 0;
  WorkItem next_;
  MapEntry next_entries_;
  int kv_head_ = 0;
  uint32_t first_tile_ = 0;
  int pieces_ = 0, column_ = 0;  // gathered so far; the column is the lane's own
  int pending_pieces_ = 0, pending_column_ = 0, pending_head_ = 0;  // of the tile whose V is not loaded yet
  static constexpr int kStep = C::kUneven ? 2 : 1;                  // slots
  RingPosition<C::kSlots> ring_, v_ring_{C::kFirstV, 0};            // v_ring_: only with C::kUneven
  uint32_t item_ = 0;
};

// All CTAs together prefetch the plan to L2. Its loads depend on each other, and each would be a trip to
// device memory for the first items.
__device__ __forceinline__ void prefetch_plan(const ForwardParams& params, int lane) {
  constexpr uint32_t kLine = 128;
  for (uint32_t at = (lane * gridDim.x + blockIdx.x) * kLine; at < params.plan_bytes;
       at += 32 * gridDim.x * kLine)
    prefetch_to_l2(params.plan + at);
}

// ---- the row warp ----------------------------------------------------------------------------------------

// Stores `tokens` tokens of a warpgroup and nothing after them: panel by panel, in powers of two.
template <class C>
__device__ void store_panels(const ForwardParams& params, uint32_t from, int head, int token, int tokens) {
  for (int i = 0, done = 0; done < tokens; ++i) {
    if (!(tokens >> i & 1)) continue;
    for (int panel = 0; panel < C::kPanels; ++panel)
      cp_async_bulk_tensor_store(params.o_panel[i],
                                 from + panel * C::kQPanelBytes + (done << params.log2_pack) * kPanelRowBytes,
                                 0, head, token + done, panel);
    done += 1 << i;
  }
}

// Loads q, and stores o, which leaves through the buffer of its q (unless q is a lone one). Runs in one lane.
template <class C>
class RowMover {
 public:
  __device__ RowMover(const ForwardParams& params, StreamSharedMemory<C>& memory, StreamBarriers<C>& barriers)
      : params_(params), memory_(memory), barriers_(barriers) {}

  __device__ void run() {
    const ItemNote none{0, 0, 1};
    ItemNote out = none, next = none;  // the items two and one before `in`
    bool ended = false;
    for (uint32_t number = 0; !ended || !out.end; ++number) {
      const int slot = static_cast<int>(number % C::kQBuffers);
      ItemNote in = none;
      if (!ended) {
        mbarrier_wait(barriers_.item_full[number % C::kItemNotes], number / C::kItemNotes % 2);
        in = barriers_.item[number % C::kItemNotes];
      }
      for (int w = 0; w < C::kWarpgroups; ++w) {
        mbarrier_wait(barriers_.q_empty[slot][w], number / C::kQBuffers % 2 ^ 1);
        if (!out.end && params_.o_f32 == nullptr) store_o(out, slot, w);
        if (!ended) load_q(in, slot, w);
      }
      // All warpgroups have written o of the item that was noted so long ago.
      constexpr uint32_t kWritten = C::kLoneQuery ? 3 : 2;
      static_assert(kWritten < C::kItemNotes,
                    "the load warp would wait for a place, and the row warp for a note");
      if (number >= kWritten) mbarrier_arrive(barriers_.item_empty[(number - kWritten) % C::kItemNotes]);
      if constexpr (kFaulty) race_for(params_, barriers_.item);
      ended = in.end;
      out = next;
      if constexpr (!C::kLoneQuery) next = in;
    }
    cp_async_bulk_wait_group();
  }

 private:
  __device__ void load_q(const ItemNote& item, int slot, int w) {
    Mbarrier& full = barriers_.q_full[slot][w];
    if (item.end) return mbarrier_arrive(full);
    mbarrier_arrive_expect_tx(full, C::kQBytes);
    cp_async_bulk_tensor_load(shared_address(memory_.q[slot][w]), params_.q, full, 0, item.head(),
                              item.token + w * tokens_of_warpgroup(), 0, CachePolicy::kEvictFirst);
  }

  __device__ void store_o(const ItemNote& item, int slot, int w) {
    const uint32_t from = shared_address(memory_.q[slot][w]);
    const int token = item.token + w * tokens_of_warpgroup(),
              tokens = item.rows() - w * tokens_of_warpgroup();
    if (tokens >= tokens_of_warpgroup() || token + tokens == params_.tokens_q)
      cp_async_bulk_tensor_store(params_.o, from, 0, item.head(), token, 0);
    else
      store_panels<C>(params_, from, item.head(), token, tokens);
    cp_async_bulk_commit_group();
    cp_async_bulk_wait_group_read();
  }

  __device__ int tokens_of_warpgroup() const { return 64 >> params_.log2_pack; }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
};

}  // namespace longspan::sm90
