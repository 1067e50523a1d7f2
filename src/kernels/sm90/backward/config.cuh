// The backward kernel's shape, its shared memory, and what its warps tell each other.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/isa/bulk.cuh"
#include "kernels/sm90/isa/ring_position.cuh"
#include "kernels/sm90/isa/wgmma_shared.cuh"

namespace longspan::sm90 {

// The shape of one instance of the kernel.
template <class ElementT, int kHeadDimT, int kRowsT, int kStreamsT, BackwardStore kStoreT, bool kInRowsT,
          bool kRestsT>
struct BackwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;                 // 64 or 128
  static constexpr int kRows = kRowsT;                       // queries of a tile
  static constexpr int kStreams = kStreamsT;                 // independent streams of work items in a block
  static constexpr int kConsumers = 2;                       // warpgroups, of 64 keys each
  static constexpr int kWarpgroups = kConsumers / kStreams;  // of a stream
  static constexpr int kKeys = 64 * kWarpgroups;             // of a tile
  static constexpr int kQStages = kHeadDim == 128 ? 2 : 3, kDoStages = 2;
  static constexpr int kDsBuffers = 2;
  static constexpr BackwardStore kStore = kStoreT;
  // dq goes to its sums by the copy engine, from shared memory, in which two streams leave no room for it.
  static constexpr bool kBulk = kStreams == 1;
  static constexpr bool kOrdered = kStore == BackwardStore::kOrdered;
  static constexpr bool kScheduled = kOrdered && kRows == 64;  // can keep to a BackwardSchedule
  static constexpr bool kKeepsTurns = kOrdered && !kBulk;      // keep_turns() does, for the threads that add
  static constexpr bool kClaimed = kStore == BackwardStore::kClaimed;
  static constexpr bool kInAnyOrder = kBulk && !kOrdered;
  // On its way out. A second one is worth more than one for the next item's K would be; tiles of more than 64
  // rows leave no room for it.
  static constexpr int kDqBuffers = kBulk && kRows == 64 ? 2 : 1;

  static constexpr int kConsumerWarps = 4 * kWarpgroups;  // of a stream
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr uint32_t kKvPanelBytes = kKeys * kPanelRowBytes;
  static constexpr uint32_t kKvBytes = kKvPanelBytes * kPanels;
  static constexpr uint32_t kRowPanelBytes = kRows * kPanelRowBytes;  // of q, do; and of ds: 64 keys a panel
  static constexpr uint32_t kRowBytes = kRowPanelBytes * kPanels;
  static constexpr uint32_t kStatsBytes = 2 * kRows * sizeof(float);
  static constexpr bool kSpansArrive = kStreams == 1;  // with q; for two streams there is no room
  static constexpr uint32_t kSpansBytes = kKeys * sizeof(uint32_t);
  // dq = ds k, and its sums lie in rows, of any tile; each of two warpgroups computes half of head_dim. Else
  // dq^T = k^T ds^T, in products of 64 of head_dim, whose sums lie as the threads hold them.
  static constexpr bool kInRows = kInRowsT;
  // Whether the kernel can do the passes before and after it as well. Where additions are ordered they cost
  // more than they gave: docs/lab/2026-11-sm90-backward.md, version 39.
  static constexpr bool kPasses = kInRows && kInAnyOrder;
  static constexpr bool kRests = kRestsT;  // the second warpgroup, where no row sees its keys
  static_assert(!kRests || kWarpgroups == 2, "who rests leaves the tensor cores to the other warpgroup");
  static constexpr int kDqColumns = kInRows ? kHeadDim / kWarpgroups : kRows;
  static constexpr int kDqFloats = 64 * kDqColumns;
  static constexpr int kDqOfWarpgroup = kInRows ? 1 : kPanels / kWarpgroups;
  // Where work is not short of registers, -lse is read while the product is computed that it is added to.
  static constexpr bool kEarlyLse = !(kOrdered && kInRows);
  // Steps of dv's product, of 16 rows each, that are issued before ds is computed, to run meanwhile: a warp
  // that issues a product with an operand in registers is held until the tensor cores take it. The others are
  // issued when ds is stored, and run while the warpgroups meet. With dq in more registers, all are over
  // then.
  static constexpr int kDvStepsAhead = kDqOfWarpgroup > 1 ? kRows / 16 : kEarlyLse ? 1 : 2;
  // A thread's. The kernel starts with as many for all, and they can only be exchanged: a warpgroup that asks
  // for more than the other has given up waits for ever.
  // With 24, the load warp spills; two streams, and tiles of more rows, need what is left.
  static constexpr bool kMostRegisters = kStreams > 1 || kRows > 64;
  static constexpr int kProducerRegisters = kMostRegisters ? 24 : 40;
  static constexpr int kConsumerRegisters = kMostRegisters ? 240 : 232;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                    (1 + kConsumers) * (65536 / kThreads / 8 * 8),
                "more registers than a block has");

  static_assert(kHeadDim == 64 || kHeadDim == 128, "head_dim must be 64 or 128");
  static_assert(kRows % 16 == 0 && kDqColumns % 8 == 0, "a tile's rows are a multiple of 16");
  static_assert(
      kInRows ? kWarpgroups == 2 && kRows == 64 : kPanels >= kWarpgroups,
      "dq in rows: 64 by half of head_dim for each of two warpgroups; dq^T: 64 of head_dim at least");
  static_assert(kStreams == 1 ? kStore != BackwardStore::kRegisters
                              : kStreams == 2 && (kStore == BackwardStore::kRegisters || kOrdered),
                "one stream sends dq from shared memory, two add it from registers");
};

// What the load warp tells the consumers about a tile, beside its rows of q.
struct alignas(16) BackwardNote {
  int32_t code;      // as DeviceRun::code; 0: the first `limit` keys are visible to all rows
  int32_t flags;     // BackwardFlags, limit << 8, and the item's part << 16
  int32_t dq_tile;   // head * row_tiles + row tile
  int32_t key_tile;  // kv_head * key_tiles + key tile
};
// kUpperRests: none of the tile's rows sees a key of the second warpgroup's; only with C::kRests.
enum BackwardFlags : int32_t { kItemBegins = 1, kItemEnds = 2, kNoMoreWork = 4, kUpperRests = 8 };

// What has become of a half of a tile of dq, with BackwardStore::kClaimed; with kOrdered kUntouched, or whose
// turn is next.
enum DqState : int32_t { kUntouched = 0, kBeingStored = 1, kStored = 2 };

// What a sender may be told instead of a tile. A quarter is half of an item's dk (0, 1) or dv (2, 3): number
// `count`, of key tile `first`; `turn` says whether the item is the first of these keys (0).
enum DqJobKind : int32_t { kNoMoreJobs = -1, kQuarterOfSums = -2 };
// Added to the count of a tile's rows: it is the item's last one, which the passes wait for.
inline constexpr int32_t kLastOfItem = 0x100;

// What is to become of a tile of dq.
struct alignas(16) DqJob {
  int32_t tile;          // head * row_tiles + row tile, or a DqJobKind
  int32_t first, count;  // its rows; and kLastOfItem
  int32_t turn;          // whose turn it must be with BackwardStore::kOrdered, or where keep_turns() finds
                         // that; with kClaimed a bit for each warpgroup's half that is known to be stored
                         // already; -1: nothing is added
};

template <class C>
struct BackwardStreamMemory {
  alignas(1024) uint8_t k[C::kKvBytes];
  alignas(1024) uint8_t v[C::kKvBytes];
  alignas(1024) uint8_t q[C::kQStages][C::kRowBytes];
  alignas(1024) uint8_t dout[C::kDoStages][C::kRowBytes];
  alignas(1024) uint8_t ds[C::kDsBuffers][C::kWarpgroups][C::kRowPanelBytes];  // [64 keys a panel][rows][64]
  float dq[C::kBulk ? C::kDqBuffers : 0][C::kWarpgroups][C::kDqFloats];        // on its way out
};

template <class C>
struct BackwardStreamState {
  alignas(16) float stats[C::kQStages][2][C::kRows];                        // in the order of stats_index
  alignas(16) uint32_t spans[C::kSpansArrive ? C::kQStages : 0][C::kKeys];  // of a partial tile of one layer
  BackwardNote note[C::kQStages];
  DqJob job[C::kQStages];
  int32_t arrived[C::kWarpgroups];  // how many items of its keys came before one, at its end
  Mbarrier q_full[C::kQStages], q_empty[C::kQStages];
  Mbarrier do_full[C::kDoStages], do_empty[C::kDoStages];
  Mbarrier k_full, k_empty, v_full, v_empty;
  Mbarrier dq_full[C::kWarpgroups][C::kDqBuffers], dq_empty[C::kWarpgroups][C::kDqBuffers];
  // Of what is on its way out. It ends at a multiple of 16 bytes: where the arrays below have no elements,
  // nvcc 13.0 has no padding behind them.
  DqJob dq_job[C::kWarpgroups][C::kDqBuffers];
  // Of a tile of dq: its turn, which has come; its share has been added.
  int32_t turn[C::kKeepsTurns ? 1 : 0];
  Mbarrier turn_come[C::kKeepsTurns ? 1 : 0], dq_added[C::kKeepsTurns ? 1 : 0];
};

template <class C>
struct BackwardSharedMemory {
  BackwardStreamMemory<C> memory[C::kStreams];
  BackwardStreamState<C> state[C::kStreams];
  int32_t begun;  // blocks that began before this one; then the first item of one that has done passes
};

}  // namespace longspan::sm90
