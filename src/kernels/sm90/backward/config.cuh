// The backward kernel's shape, its shared memory, and the messages between its warps.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/isa/bulk.cuh"
#include "kernels/sm90/isa/ring_position.cuh"
#include "kernels/sm90/isa/wgmma.cuh"

namespace longspan::sm90 {

// One instance of the kernel.
template <class ElementT, int kHeadDimT, int kRowsT, int kKeysT, BackwardStore kStoreT, bool kInRowsT>
struct BackwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;                 // 64 or 128
  static constexpr int kRows = kRowsT;                       // queries of a tile
  static constexpr int kKeys = kKeysT;                       // of a tile: 64, 128 or 192
  static constexpr bool kWide = kKeys == 192;                // wide_consumer.cuh
  static constexpr bool kPaired = false;                     // large_config.cuh
  static constexpr int kStreams = kKeys == 64 ? 2 : 1;       // independent streams of work items in a CTA
  static constexpr int kConsumers = kWide ? 3 : 2;           // warpgroups, of 64 keys each
  static constexpr int kWarpgroups = kConsumers / kStreams;  // of a stream
  // In rows: dq = ds k, with sums in token rows, of any tile. Else dq^T = k^T ds^T in products of 64 of
  // head_dim, with sums as threads hold them.
  static constexpr bool kInRows = kInRowsT;
  // In tiles of 128 rows each warpgroup computes dq of half of the rows, so that its sums lie like those of
  // two tiles of 64 rows.
  static constexpr bool kHalves = kRows == 128;
  // The warpgroups take turns, each with all of a tile's dq, during the next tile. Else each computes a
  // share of every tile's.
  static constexpr bool kTakeTurns = kWide || (kInRows && !kHalves);
  static constexpr bool kSkips = kTakeTurns;  // as BackwardShape::skips_parts()
  // kWide: all rings have a slot for each warpgroup.
  static constexpr int kQStages = kHeadDim == 128 ? 2 : 3, kDoStages = kWide ? 3 : 2;
  static constexpr int kDsBuffers = kWide ? 3 : 2;
  static constexpr int kJobs = (kTakeTurns ? 2 : 1) * kQStages;
  static constexpr BackwardStore kStore = kStoreT;
  // TMA adds dq from shared memory. Two streams leave no room for that.
  static constexpr bool kBulk = kStreams == 1;
  static constexpr bool kOrdered = kStore == BackwardStore::kOrdered;
  static constexpr bool kScheduled = kOrdered && kRows == 64;  // can follow a BackwardSchedule
  // a warp keeps the turns for threads that add themselves
  static constexpr bool kKeepsTurns = kOrdered && !kBulk;
  static constexpr bool kClaimed = kStore == BackwardStore::kClaimed;
  static constexpr bool kInAnyOrder = kBulk && !kOrdered;
  // A warpgroup writes dq of row tiles that no other key tile comes to.
  static constexpr bool kWritesDq = kClaimed && kTakeTurns;
  // Staging buffers of dq, for each warpgroup. A second one is worth more than a second buffer of K. All of
  // a tile's dq, or more rows, leave no room for it.
  static constexpr int kDqBuffers = kBulk && kRows == 64 && !kTakeTurns ? 2 : 1;

  static constexpr int kConsumerWarps = 4 * kWarpgroups;  // of a stream
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr uint32_t kKvPanelBytes = kKeys * kPanelRowBytes;
  static constexpr uint32_t kKvBytes = kKvPanelBytes * kPanels;
  // of q and do; and of ds, with 64 keys a panel
  static constexpr uint32_t kRowPanelBytes = kRows * kPanelRowBytes;
  static constexpr uint32_t kRowBytes = kRowPanelBytes * kPanels;
  static constexpr uint32_t kKBytes = kKvBytes, kVBytes = kKvBytes, kQBytes = kRowBytes, kDoBytes = kRowBytes;
  static constexpr uint32_t kStatsBytes = 2 * kRows * sizeof(float);
  static constexpr bool kSpansArrive = kStreams == 1;  // by TMA with q; two streams leave no room
  static constexpr uint32_t kSpansBytes = kKeys * sizeof(uint32_t);
  // Whether the kernel can do the passes before and after it. With ordered additions they cost more than
  // they gain: docs/lab/2026-11-sm90-backward.md, version 39.
  static constexpr bool kPasses = kInRows && kInAnyOrder && kRows == 64 && !kWide;
  // Shares of dq, too, are computed during the item's next tile, so that no warpgroup waits for ds of
  // another. Full masks lose 6 % by it without kPackedP, for which f16 has too little range (scale_x2).
  static constexpr bool kApart = kBulk && !kInRows && !kWide && std::is_same_v<Element, __nv_bfloat16>;
  static constexpr int kDqShares = kTakeTurns ? 1 : kWarpgroups;
  static constexpr int kDqColumns = kHalves || kTakeTurns ? kHeadDim : kRows;
  static constexpr int kDqFloats = 64 * kDqColumns;
  static constexpr int kDqOfWarpgroup = kHalves || kTakeTurns ? 1 : kPanels / kWarpgroups;
  // ds is computed from p as it is rounded for dv's product, which saves the registers of the other one.
  static constexpr bool kPackedP = kHalves || kWide || kApart;
  // -lse is read during the product that it is added to, where registers suffice.
  static constexpr bool kEarlyLse = !kHalves;
  // Steps of dv's product (16 rows each) that are issued before ds is computed. A warp that issues wgmma
  // with an operand in registers is held until the tensor cores take it, so the other steps are issued
  // after ds is stored, and run while the warpgroups meet. If dq takes more registers, all steps come
  // first.
  static constexpr int kDvStepsAhead = kDqOfWarpgroup > 1 ? kRows / 16 : kEarlyLse ? 1 : 2;
  // Registers per thread. All warps start with the same number, and warpgroups can only exchange registers:
  // one that asks for more than the other has released waits for ever. With 24 the load warp spills; two
  // streams, more rows, and dk's product beside dq's need the rest. Three consumers have 160 each.
  static constexpr bool kMostRegisters = kStreams > 1 || kRows > 64 || (kInRows && kHeadDim == 128);
  static constexpr int kProducerRegisters = kWide ? 32 : kMostRegisters ? 24 : 40;
  static constexpr int kConsumerRegisters = kWide ? 160 : kMostRegisters ? 240 : 232;
  // Whether consumers keep the thread's index (thread_index.cuh). f16 and ordered additions lack a register
  // for it, and would lose up to 3 %.
  static constexpr bool kKeepsThread = kInAnyOrder && std::is_same_v<Element, __nv_bfloat16>;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                    (1 + kConsumers) * (65536 / kThreads / 8 * 8),
                "more registers than a CTA has");

  static_assert(kHeadDim == 64 || kHeadDim == 128, "head_dim must be 64 or 128");
  static_assert(kRows % 16 == 0 && kDqColumns % 8 == 0, "a tile's rows are a multiple of 16");
  static_assert(
      kHalves   ? kWarpgroups == 2 && kHeadDim == 64
      : kWide   ? kRows == 64 && kHeadDim == 64
      : kInRows ? kWarpgroups == 2 && kRows == 64 && kStreams == 1
                : kPanels >= kWarpgroups,
      "dq of 128 rows: 64 for each of two warpgroups; in rows: 64 for two or three that take turns; "
      "dq^T: 64 of head_dim at least for each");
  static_assert(kStreams == 1 ? kStore != BackwardStore::kRegisters
                              : kStreams == 2 && (kStore == BackwardStore::kRegisters || kOrdered),
                "TMA adds dq of one stream from shared memory; two streams add it from registers");
};

// What the load warp tells the consumers about a tile, beside its rows of q.
struct alignas(16) BackwardNote {
  int32_t code;      // as DeviceRun::code; 0: all rows see the first `limit` keys
  int32_t flags;     // BackwardFlags | limit << 8 | part of the item << 16
  int32_t dq_tile;   // head * row_tiles + row tile
  int32_t key_tile;  // kv_head * key_tiles + key tile
};
enum BackwardFlags : int32_t {
  kItemBegins = 1,
  kItemEnds = 2,
  kNoMoreWork = 4,
  kFirstSkips = 8,  // none of the first warpgroup's keys is seen; the next bits are the others'
};

// The state of half a tile of dq. BackwardStore::kClaimed: these; kOrdered: kUntouched, or the next turn.
enum DqState : int32_t { kUntouched = 0, kBeingStored = 1, kStored = 2 };

// What a send warp gets instead of a tile. kQuarterOfSums: quarter `count` of key tile `first`, a half of the
// item's dk (0, 1) or dv (2, 3); `turn` is 0 for the first item of these keys.
enum DqJobKind : int32_t { kNoMoreJobs = -1, kQuarterOfSums = -2 };
// Added to a tile's number of rows: it is the item's last tile, for which the passes wait.
inline constexpr int32_t kLastOfItem = 0x100;

// What to do with a tile of dq.
struct alignas(16) DqJob {
  int32_t tile;          // head * row_tiles + row tile, or a DqJobKind
  int32_t first, count;  // its rows, and kLastOfItem
  // kOrdered: the tile's turn, or where keep_turns() finds it. kClaimed: one bit for each share that is
  // known to be stored, or kOnlyVisit. -1: nothing is added.
  int32_t turn;
};
inline constexpr int32_t kOnlyVisit = 4;  // no other key tile comes to the row tile: dq is written

template <class C>
struct BackwardStreamMemory {
  alignas(1024) uint8_t k[C::kKvBytes];
  alignas(1024) uint8_t v[C::kKvBytes];
  alignas(1024) uint8_t q[C::kQStages][C::kRowBytes];
  alignas(1024) uint8_t dout[C::kDoStages][C::kRowBytes];
  alignas(1024) uint8_t ds[C::kDsBuffers][C::kWarpgroups][C::kRowPanelBytes];  // [64 keys a panel][rows][64]
  float dq[C::kBulk ? C::kDqBuffers : 0][C::kWarpgroups][C::kDqFloats];        // staging
};

template <class C>
struct BackwardStreamState {
  alignas(16) float stats[C::kQStages][2][C::kRows];                        // in the order of stats_index
  alignas(16) uint32_t spans[C::kSpansArrive ? C::kQStages : 0][C::kKeys];  // of a partial tile of one layer
  BackwardNote note[C::kQStages];
  DqJob job[C::kJobs];
  int32_t arrived[C::kWarpgroups];  // items of these keys that arrived before this one
  Mbarrier q_full[C::kQStages], q_empty[C::kQStages];
  Mbarrier do_full[C::kDoStages], do_empty[C::kDoStages];
  Mbarrier k_full, k_empty, v_full, v_empty;
  Mbarrier ds_full[C::kApart || C::kTakeTurns ? C::kDsBuffers : 0];
  Mbarrier ds_empty[C::kTakeTurns ? C::kDsBuffers : 0];
  Mbarrier dq_full[C::kWarpgroups][C::kDqBuffers], dq_empty[C::kWarpgroups][C::kDqBuffers];
  // What the staging buffers hold. The array ends at a multiple of 16 bytes: nvcc 13.0 does not pad behind it
  // if the arrays below are empty.
  DqJob dq_job[C::kWarpgroups][C::kDqBuffers];
  DqJob held_job[C::kApart ? C::kWarpgroups : 0];  // of the tile before
  // The turn of a tile of dq, which has come; and that its share has been added.
  int32_t turn[C::kKeepsTurns ? 1 : 0];
  Mbarrier turn_come[C::kKeepsTurns ? 1 : 0], dq_added[C::kKeepsTurns ? 1 : 0];
};

// Where a tile's job is.
template <class C>
__device__ __forceinline__ int job_place(const RingPosition<C::kQStages>& q) {
  if constexpr (C::kJobs == C::kQStages) return q.slot;
  return q.slot + (q.parity != 0 ? C::kQStages : 0);
}

template <class C>
struct BackwardSharedMemory {
  BackwardStreamMemory<C> memory[C::kStreams];
  BackwardStreamState<C> state[C::kStreams];
  int32_t begun;  // CTAs that began before this one; later the first item of a pass CTA
};

}  // namespace longspan::sm90
