// The backward kernel's load warp, which walks the tile map by columns and fills the rings.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "kernels/sm90/isa/pair.cuh"

namespace longspan::sm90 {

// A BackwardWork and its KV head, one word a lane. So an item takes one register, and the prefetched one
// another. Whole warps call these functions.
class BackwardItem {
 public:
  BackwardItem() = default;
  __device__ BackwardItem(const BackwardParams& params, int index, int lane) {
    if (index >= params.items) return;
    const int per_section = params.section_heads * params.items_per_head;
    const int section = min(index / per_section, params.last_section);
    const int inside = index - section * per_section;
    const int first = section * params.section_heads;
    const int heads = section == params.last_section ? params.heads_kv - first : params.section_heads;
    const int position = inside / heads;
    const int kv_head = first + (inside - position * heads);
    const int64_t base = (params.per_head_masks ? int64_t{kv_head} * params.items_per_mask : 0) +
                         (section == params.last_section ? params.last_list : 0);
    const int* work = reinterpret_cast<const int*>(params.work + base + position);
    words_ = lane < kWords ? __ldg(work + lane) : kv_head;
  }

  __device__ int kv_head() const { return word(kWords); }  // -1: there is no more work
  __device__ int key_tile() const { return word(0); }
  __device__ uint32_t first_run() const { return static_cast<uint32_t>(word(1)); }
  __device__ int runs() const { return word(2); }
  __device__ uint32_t first_turn() const { return static_cast<uint32_t>(word(3)); }
  __device__ int first_key() const { return word(4); }
  __device__ int first_head() const { return word(5); }  // within the group
  __device__ int heads() const { return word(6); }
  __device__ int part() const { return word(7); }

 private:
  static constexpr int kWords = sizeof(BackwardWork) / sizeof(int);
  __device__ __forceinline__ int word(int number) const { return __shfl_sync(0xffffffff, words_, number); }

  int words_ = -1;
};

// A DeviceRun with the extent of its first row tile.
struct BackwardRun {
  int32_t tile = 0, code = 0;
  int32_t first = 0, count = 0;  // rows of the first tile
};

// Runs `first` to `first + 31` of an item in the order of the walk, one a lane.
template <class C>
__device__ __forceinline__ BackwardRun fetch_backward_runs(const BackwardParams& params,
                                                           const BackwardItem& item, int first, int lane) {
  BackwardRun run;
  const int number = first + lane, kv_head = item.kv_head(), runs = item.runs();
  const DeviceRun* all = params.runs + item.first_run();
  if (kv_head >= 0 && number < runs) {
    const int2 raw =
        __ldg(reinterpret_cast<const int2*>(all + (params.descending ? runs - 1 - number : number)));
    const int tile = raw.x / C::kRows;
    const int mask = params.per_head_masks ? kv_head : 0;
    const int2 extent =
        __ldg(reinterpret_cast<const int2*>(params.row_tile + int64_t{mask} * params.row_tiles + tile));
    run = BackwardRun{tile, raw.y, extent.x, extent.y};
  }
  return run;
}

// The number of the next item from the counter; the first `workers` items are handed out without it.
__device__ __forceinline__ int take_item(const BackwardParams& params, int workers) {
  return atomicAdd(params.counters + kNextItem, 1) + workers;
}

template <class C>
class BackwardLoader {
 public:
  __device__ BackwardLoader(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                            BackwardStreamState<C>& state, int lane)
      : params_(params), memory_(memory), state_(state), lane_(lane) {
    if constexpr (C::kPasses) prepared_ = params.pass_ctas > 0 ? params.heads_of(0) : params.heads_kv;
  }

  // An item is taken when the current one has three tiles left: early enough to hide the chain of dependent
  // loads up to its first tile, and not earlier, since some items are a hundred times as long as others.
  // The first item has number `worker`.
  __device__ void run(int worker, int workers) {
    workers_ = workers;
    if constexpr (C::kScheduled) next_index_ = worker;
    BackwardItem item(params_, worker, lane_);
    BackwardRun runs = fetch_backward_runs<C>(params_, item, 0, lane_);
    if constexpr (C::kClaimed || C::kOrdered) wait_pass_before();
    while (item.kv_head() >= 0) {
      steps_ = 0;
      if (item.heads() > 0) load_item(item, runs);
      while (steps_ < kStepsAhead) fetch_next();
      item = next_;
      runs = next_runs_;
    }
    finish();
  }

 private:
  static constexpr int kStepsAhead = 3;

  // Waits for the kernel before: its statistics, zeros and counters. All other warps learn of tiles from this
  // one, by a barrier that waits for statistics.
  __device__ void wait_pass_before() {
    if (waited_) return;
    griddepcontrol_wait();
    waited_ = true;
  }

  // One step towards the next item. Each step needs the result of the one before.
  __device__ void fetch_next() {
    if (steps_ == 0) {
      wait_pass_before();
      if (scheduled())
        next_index_ = __ldg(params_.next_item + next_index_);
      else if (lane_ == 0 && (!C::kPaired || cluster_ctarank() == 0))
        next_index_ = take_item(params_, workers_);
    } else if (steps_ == 1) {
      if constexpr (C::kPaired) next_index_ = agree_on_number(state_.numbers, items_++, next_index_, lane_);
      const int index = __shfl_sync(0xffffffff, next_index_, 0);
      if constexpr (C::kScheduled) next_index_ = index;
      next_ = BackwardItem(params_, index, lane_);
    } else {
      next_runs_ = fetch_backward_runs<C>(params_, next_, 0, lane_);
    }
    ++steps_;
  }

  // Tiles of these runs, one run a lane.
  __device__ static int tiles_of(const BackwardRun& run, int count, int lane) {
    return __reduce_add_sync(0xffffffff, lane < count ? max(run.code, 1) : 0);
  }

  // Waits until the pass before is done with the item's heads.
  __device__ void wait_prepared(int kv_head) {
    if constexpr (C::kPasses) {
      if (kv_head < prepared_) return;
      const BackwardJobs& jobs = params_;
      const int section = jobs.section_of(kv_head);
      const int32_t* prepared = params_.prepared + section;
      const int needed = jobs.jobs_of(section);
      while (__any_sync(0xffffffff, ld_acquire(prepared) < needed)) __nanosleep(50);
      // For TMA loads of this warp, and for those of the send warps, which learn of tiles after this.
      fence_proxy_async_all();
      prepared_ = jobs.first_head(section) + jobs.heads_of(section);
    }
  }

  __device__ void load_item(const BackwardItem& item, BackwardRun batch) {
    begins_ = kItemBegins;
    wait_prepared(item.kv_head());
    if (item.runs() == 0) {  // no row sees a key: one wholly masked tile leaves zeros
      turn_ = -1;
      load_tile(item, 0, {0, 0, 0, 0}, 0, kItemEnds);
      return;
    }
    const int limit = max(params_.tokens_kv - first_key(item), 0);  // keys past it are not visible
    // Head after head; or, by rows, all heads of a tile before the next tile.
    const int heads = item.heads(), outer = params_.by_rows ? 1 : heads, inner = heads / outer;
    for (int h = 0; h < outer; ++h) {
      if (!scheduled() || h == 0) walked_ = 0;
      const int runs = item.runs();
      for (int done = 0; done < runs; done += 32) {
        if (runs > 32 && (done > 0 || h > 0)) batch = fetch_backward_runs<C>(params_, item, done, lane_);
        const int count = min(32, runs - done);
        const bool last_batch = h == outer - 1 && done + count == runs;
        // Tiles left in the item, or an upper bound.
        int left = last_batch ? tiles_of(batch, count, lane_) * inner : kStepsAhead + 1;
        for (int i = 0; i < count; ++i) {
          const int code = __shfl_sync(0xffffffff, batch.code, i);
          const int first = __shfl_sync(0xffffffff, batch.first, i);
          const int rows = __shfl_sync(0xffffffff, batch.count, i);
          const int first_tile = __shfl_sync(0xffffffff, batch.tile, i);
          const int tiles = max(code, 1);
          for (int t = 0; t < tiles; ++t) {
            const int tile = params_.descending ? tiles - 1 - t : t;
            // The last tile of a run of full tiles may have fewer rows.
            const int row = first + tile * C::kRows;
            const BackwardRun one{first_tile + tile, code < 0 || limit >= C::kKeys ? code : 0, row,
                                  min(code < 0 ? rows : C::kRows, params_.tokens_q - row)};
            if (!scheduled()) fetch_turn(item);  // the same for all heads
            for (int head = h; head < h + inner; ++head) {
              if (scheduled()) fetch_turn(item);
              const int ends = last_batch && left == 1 ? kItemEnds : 0;
              if (left <= kStepsAhead) fetch_next();
              load_tile(item, head, one, limit, ends);
              left -= last_batch;
            }
          }
        }
      }
    }
  }

  // Whether items and turns are those of a BackwardSchedule.
  __device__ bool scheduled() const { return C::kScheduled && params_.next_item != nullptr; }

  // Among all heads.
  __device__ int query_head(const BackwardItem& item, int head) const {
    return item.kv_head() * params_.group + item.first_head() + head;
  }
  __device__ int key_place(const BackwardItem& item) const {
    return item.kv_head() * params_.key_tiles + item.key_tile();
  }
  __device__ uint32_t place_of_turns(const BackwardItem& item) const {
    return item.first_turn() + params_.turns_of_head * static_cast<uint32_t>(item.kv_head());
  }

  // Turns are loaded 32 at a time, one a lane. keep_turns() looks them up itself and is told where.
  __device__ void fetch_turn(const BackwardItem& item) {
    if constexpr (C::kKeepsTurns) {
      turn_ = static_cast<int>(place_of_turns(item)) + walked_++;
    } else if constexpr (C::kOrdered) {
      if (walked_ % 32 == 0) turns_ = __ldg(params_.turns + place_of_turns(item) + walked_ + lane_);
      turn_ = __shfl_sync(0xffffffff, turns_, walked_ % 32);
      ++walked_;
    } else {
      turn_ = 0;
    }
  }

  // `head_of_item` counts within the item.
  __device__ void load_tile(const BackwardItem& item, int head_of_item, const BackwardRun& tile, int limit,
                            int ends) {
    if constexpr (C::kPaired)
      load_tile_in_pair(item, head_of_item, tile, limit, ends);
    else
      load_tile_alone(item, head_of_item, tile, limit, ends);
  }

  // In the order in which consumers need them: K, q, V, do.
  __device__ void load_tile_alone(const BackwardItem& item, int head_of_item, const BackwardRun& tile,
                                  int limit, int ends) {
    const int head = query_head(item, head_of_item), place = key_place(item), part = item.part();
    int code = tile.code, skips = 0;
    if constexpr (C::kSkips) {
      if (code < 0) {
        skips = (~code & kUnseenParts) / (kUnseenPart / kFirstSkips);
        code |= kUnseenParts;  // of the complement
      }
    }
    if (begins_)
      load(params_.k, memory_.k, C::kKBytes, state_.k_full, state_.k_empty, kv_parity_, item.first_key(),
           item.kv_head());
    const int dq_tile = head * params_.row_tiles + tile.tile;
    int turn = turn_;
    if constexpr (C::kClaimed) {  // looked up here, off the critical path of the send warp
      if (turn >= 0) {
        const bool stored =
            lane_ < C::kDqShares && ld_acquire(params_.turn + int64_t{dq_tile} * 2 + lane_) == kStored;
        turn = static_cast<int>(__ballot_sync(0xffffffff, stored));
        __syncwarp();
        if (C::kWritesDq && params_.visited_once != nullptr) {
          const int mask = params_.per_head_masks ? item.kv_head() : 0;
          if (__ldg(params_.visited_once + int64_t{mask} * params_.row_tiles + tile.tile)) turn = kOnlyVisit;
        }
      }
    }
    mbarrier_wait(state_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      state_.note[q_.slot] = BackwardNote{
          code, begins_ | ends | skips | (code == 0 ? limit << 8 : 0) | part << 16, dq_tile, place};
      const int last = C::kPasses && ends && params_.pass_ctas > 0 ? kLastOfItem : 0;
      if constexpr (C::kBulk || C::kKeepsTurns)
        state_.job[job_place<C>(q_)] = DqJob{dq_tile, tile.first, tile.count | last, turn};
      const bool spans = C::kSpansArrive && code < 0 && !(~code & kManyLayers);
      mbarrier_arrive_expect_tx(state_.q_full[q_.slot],
                                C::kQBytes + C::kStatsBytes + (spans ? C::kSpansBytes : 0));
      if (spans)
        cp_async_bulk_load(shared_address(state_.spans[q_.slot]), params_.spans + int64_t{~code} * C::kKeys,
                           C::kSpansBytes, state_.q_full[q_.slot]);
      cp_async_bulk_tensor_load(shared_address(memory_.q[q_.slot]), params_.q, state_.q_full[q_.slot], 0,
                                tile.first, 0, head, CachePolicy::kNormal);
    }
    // The first tile's other loads do not wait for the pass before.
    const bool first = !waited_;
    const uint32_t slot = q_.slot;
    if (!first) load_stats(slot, dq_tile);
    __syncwarp();
    q_.advance();
    if (begins_) {
      load(params_.v, memory_.v, C::kVBytes, state_.v_full, state_.v_empty, kv_parity_, item.first_key(),
           item.kv_head());
      kv_parity_ ^= 1;
    }
    load(params_.dout, memory_.dout[do_.slot], C::kDoBytes, state_.do_full[do_.slot],
         state_.do_empty[do_.slot], do_.parity, tile.first, head);
    do_.advance();
    begins_ = 0;
    if (first) {
      wait_pass_before();
      load_stats(slot, dq_tile);
    }
  }

  __device__ void load_stats(uint32_t slot, int dq_tile) {
    if (lane_ == 0)
      cp_async_bulk_load(shared_address(state_.stats[slot]), params_.stats + int64_t{dq_tile} * 2 * C::kRows,
                         C::kStatsBytes, state_.q_full[slot]);
  }

  __device__ void load(const CUtensorMap& map, const uint8_t* destination, uint32_t bytes, Mbarrier& full,
                       Mbarrier& empty, uint32_t parity, int token, int head) {
    mbarrier_wait(empty, parity ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(full, bytes);
      cp_async_bulk_tensor_load(shared_address(destination), map, full, 0, token, 0, head,
                                CachePolicy::kNormal);
    }
    __syncwarp();
  }

  // ---- in a pair --------------------------------------------------------------------------------------

  // Of this CTA's half of the item, or of the other one's.
  __device__ static int first_key(const BackwardItem& item, bool other = false) {
    return item.first_key() + (C::kPaired ? C::kKeys * (cluster_ctarank() ^ static_cast<int>(other)) : 0);
  }

  // q and do come first, while K and V of the item before are still in use.
  __device__ void load_tile_in_pair(const BackwardItem& item, int head_of_item, const BackwardRun& tile,
                                    int limit, int ends) {
    const int head = query_head(item, head_of_item), place = key_place(item), part = item.part();
    const int dq_tile = head * params_.row_tiles + tile.tile, slot = q_.slot;
    const bool spans = tile.code < 0 && !(~tile.code & kManyLayers);
    const bool first = !waited_;  // the first tile's other loads do not wait for the pass before
    Mbarrier& full = state_.q_full[slot];
    mbarrier_wait(state_.q_empty[slot], q_.parity ^ 1);
    mbarrier_wait(state_.other_q_empty[slot], q_.parity ^ 1);
    if (lane_ == 0) {  // loads before notes, as consumers wait for them
      mbarrier_expect_tx(full, C::kQBytes + C::kStatsBytes + (spans ? C::kSpansBytes : 0));
      load_for_both<C::kPanels>(params_.q, memory_.q[slot], full, tile.first, head);
      if (spans)
        cp_async_bulk_load(shared_address(state_.spans[slot]),
                           params_.spans + (int64_t{~tile.code} * 2 + cluster_ctarank()) * C::kKeys,
                           C::kSpansBytes, full);
    }
    if (!first) load_stats(slot, dq_tile);
    if (lane_ == 0) {
      state_.note[slot] = BackwardNote{
          tile.code, begins_ | ends | (tile.code == 0 ? limit << 8 : 0) | part << 16, dq_tile, place};
      state_.turn[slot] = turn_;
      mbarrier_arrive(full);
    }
    __syncwarp();
    q_.advance();
    mbarrier_wait(state_.do_empty[do_.slot], do_.parity ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(state_.do_full[do_.slot], C::kDoBytes);
      load_for_both<C::kPanelsV>(params_.dout, memory_.dout[do_.slot], state_.do_full[do_.slot], tile.first,
                                 head);
      prefetch_rows(tile.first + (params_.descending ? -kTilesAhead : kTilesAhead) * C::kRows, head);
    }
    __syncwarp();
    do_.advance();
    if (begins_) load_keys_of_pair(item);
    begins_ = 0;
    if (first) {
      wait_pass_before();
      load_stats(slot, dq_tile);
    }
  }

  // Loads half of the panels of a tile's rows for both CTAs, in both of which the slot is empty. Runs in one
  // lane.
  template <int kCount>
  __device__ static void load_for_both(const CUtensorMap& map, const uint8_t* destination, Mbarrier& full,
                                       int token, int head) {
    constexpr int kHalf = (kCount + 1) / 2;
    const bool first = cluster_ctarank() == 0;
    for (int panel = first ? 0 : kHalf; panel < (first ? kHalf : kCount); ++panel)
      cp_async_bulk_tensor_multicast_to_pair(shared_address(destination) + panel * C::kRowPanelBytes, map,
                                             full, 0, token, panel, head, CachePolicy::kNormal);
  }

  // To L2, which does not hold the rows of long masks: the rings are too short for the latency of device
  // memory.
  static constexpr int kTilesAhead = 4;
  __device__ void prefetch_rows(int token, int head) const {
    if (token < 0 || token >= params_.tokens_q) return;
    const int first = 2 * cluster_ctarank();
    for (int panel = first; panel < first + 2; ++panel) {
      if (panel < C::kPanels) cp_async_bulk_prefetch_tensor(params_.q, 0, token, panel, head);
      if (panel < C::kPanelsV) cp_async_bulk_prefetch_tensor(params_.dout, 0, token, panel, head);
    }
  }

  // K; of the other CTA's K the panels for which this CTA computes dq; and V, but for what registers keep.
  __device__ void load_keys_of_pair(const BackwardItem& item) {
    const int first = first_key(item), other = first_key(item, true), head = item.kv_head();
    const auto load_panel = [&](const CUtensorMap& map, const uint8_t* to, int number, Mbarrier& full,
                                int panel, int token) {
      cp_async_bulk_tensor_load(shared_address(to) + number * C::kKvPanelBytes, map, full, 0, token, panel,
                                head, CachePolicy::kNormal);
    };
    mbarrier_wait(state_.k_empty, kv_parity_ ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(state_.k_full, C::kKBytes + C::kOtherKBytes);
      for (int i = 0; i < C::kPanels; ++i) load_panel(params_.k, memory_.k, i, state_.k_full, i, first);
      for (int w = 0; w < C::kWarpgroups; ++w)
        load_panel(params_.k, memory_.other_k, w, state_.k_full, C::dq_panel(cluster_ctarank(), w), other);
    }
    __syncwarp();
    mbarrier_wait(state_.v_empty, kv_parity_ ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(state_.v_full, C::kVBytes);
      for (int i = C::kVPanelsKept; i < C::kPanelsV; ++i)
        load_panel(params_.v, memory_.v, i - C::kVPanelsKept, state_.v_full, i, first);
    }
    __syncwarp();
    kv_parity_ ^= 1;
  }

  // Tells the consumers that there is no more work.
  __device__ void finish() {
    mbarrier_wait(state_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      state_.note[q_.slot] = BackwardNote{0, kNoMoreWork, 0, 0};
      mbarrier_arrive(state_.q_full[q_.slot]);
    }
  }

  const BackwardParams& params_;
  BackwardStreamMemory<C>& memory_;
  BackwardStreamState<C>& state_;
  int lane_, workers_ = 0;
  BackwardItem next_;
  BackwardRun next_runs_;
  int next_index_ = 0, steps_ = 0;
  int begins_ = 0;
  bool waited_ = false;
  int prepared_ = 0;                       // the first KV head that may not be prepared; C::kPasses only
  int walked_ = 0, turns_ = 0, turn_ = 0;  // within the item; BackwardStore::kOrdered only
  uint32_t items_ = 0;                     // after the first one; C::kPaired only
  RingPosition<C::kQStages> q_;
  RingPosition<C::kDoStages> do_;
  uint32_t kv_parity_ = 0;
};

}  // namespace longspan::sm90
