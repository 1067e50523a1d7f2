// The backward kernel's shape, its shared memory, and what its warps tell each other.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward_ptx.cuh"
#include "kernels/sm90/backward_shape.h"
#include "kernels/sm90/backward_wgmma.cuh"

namespace longspan::sm90 {

// The shape of one instance of the kernel.
template <class ElementT, int kHeadDimT, int kRowsT, int kStreamsT, int kQStagesT, bool kPrefetchScoresT,
          BackwardStore kStoreT, bool kTransposedDqT>
struct BackwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;                 // 64 or 128
  static constexpr int kRows = kRowsT;                       // queries of a tile
  static constexpr int kStreams = kStreamsT;                 // independent streams of work items in a block
  static constexpr int kConsumers = 2;                       // warpgroups, of 64 keys each
  static constexpr int kWarpgroups = kConsumers / kStreams;  // of a stream
  static constexpr int kKeys = 64 * kWarpgroups;             // of a tile
  static constexpr int kQStages = kQStagesT, kDoStages = 2;
  static constexpr int kKBuffers = kStreams == 1 ? 2 : 1, kVBuffers = 1;
  static constexpr int kDsBuffers = 2;
  // The scores of the next tile are multiplied behind dq of this one.
  static constexpr bool kPrefetchScores = kPrefetchScoresT;
  static constexpr BackwardStore kStore = kStoreT;
  static constexpr bool kTransposedDq = kTransposedDqT;  // dq^T = k^T ds^T instead of dq = ds k
  static constexpr bool kBulk = kStore != BackwardStore::kRegisters;
  static constexpr bool kOrdered = kStore == BackwardStore::kOrdered;
  static constexpr bool kClaimed = kStore == BackwardStore::kClaimed;

  static constexpr int kConsumerWarps = 4 * kWarpgroups;  // of a stream
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr uint32_t kKvPanelBytes = kKeys * kPanelRowBytes;
  static constexpr uint32_t kKvBytes = kKvPanelBytes * kPanels;
  static constexpr uint32_t kRowPanelBytes = kRows * kPanelRowBytes;  // of q, do; and of ds: 64 keys a panel
  static constexpr uint32_t kRowBytes = kRowPanelBytes * kPanels;
  static constexpr uint32_t kStatsBytes = 2 * kRows * sizeof(float);
  // dq^T is computed in products of 64 of head_dim by kDqColumns queries, as many for each warpgroup.
  static constexpr int kDqColumns = kPanels >= kWarpgroups ? kRows : kRows / 2;
  static constexpr int kDqFloats = 64 * kDqColumns;
  static constexpr int kDqProducts = kRows * kHeadDim / kDqFloats;
  static constexpr int kDqOfWarpgroup = kDqProducts / kWarpgroups;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;  // a thread

  static_assert(kHeadDim == 64 || kHeadDim == 128, "head_dim must be 64 or 128");
  static_assert(kRows % 16 == 0 && kDqColumns % 8 == 0, "a tile's rows are a multiple of 16");
  static_assert(kTransposedDq || (kPanels == 2 && kWarpgroups == 2 && kRows == 64),
                "dq as it stands: 64 rows by 64 of head_dim 128 for each of two warpgroups");
  static_assert(kStreams == 1 || (kStreams == 2 && !kPrefetchScores && kStore == BackwardStore::kRegisters),
                "two streams go tile by tile and leave no room for dq in shared memory");
};

// What the load warp tells the consumers about a tile, beside its rows of q.
struct alignas(16) BackwardNote {
  int32_t code;      // as DeviceRun::code; 0: the first `limit` keys are visible to all rows
  int32_t flags;     // kItemBegins, kItemEnds, kNoMoreWork, limit << 8
  int32_t dq_tile;   // head * row_tiles + row tile
  int32_t key_tile;  // kv_head * key_tiles + key tile
};
enum BackwardFlags : int32_t { kItemBegins = 1, kItemEnds = 2, kNoMoreWork = 4 };

template <class C>
struct BackwardStreamMemory {
  alignas(1024) uint8_t k[C::kKBuffers][C::kKvBytes];
  alignas(1024) uint8_t v[C::kVBuffers][C::kKvBytes];
  alignas(1024) uint8_t q[C::kQStages][C::kRowBytes];
  alignas(1024) uint8_t dout[C::kDoStages][C::kRowBytes];
  alignas(1024) uint8_t ds[C::kDsBuffers][C::kWarpgroups][C::kRowPanelBytes];  // [64 keys a panel][rows][64]
  float dq[C::kBulk ? C::kWarpgroups : 0][C::kDqFloats];                       // on its way out
};

template <class C>
struct BackwardStreamState {
  alignas(16) float stats[C::kQStages][2][C::kRows];  // in the order of stats_index
  BackwardNote note[C::kQStages];
  int32_t turn[C::kQStages];  // BackwardStore::kOrdered: whose turn it must be; -1: adds nothing
  Mbarrier q_full[C::kQStages], q_empty[C::kQStages];
  Mbarrier do_full[C::kDoStages], do_empty[C::kDoStages];
  Mbarrier k_full[C::kKBuffers], k_empty[C::kKBuffers];
  Mbarrier v_full[C::kVBuffers], v_empty[C::kVBuffers];
  Mbarrier dq_full[C::kWarpgroups], dq_empty[C::kWarpgroups];
  int32_t dq_tile[C::kWarpgroups];  // of what is on its way out; -1: nothing more will come
  int32_t dq_turn[C::kWarpgroups];
};

template <class C>
struct BackwardSharedMemory {
  BackwardStreamMemory<C> memory[C::kStreams];
  BackwardStreamState<C> state[C::kStreams];
};

// A position in a ring of kSize slots, with the parity of the passes over it.
template <int kSize>
struct BackwardRing {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if constexpr (kSize == 1) {
      parity ^= 1;
    } else if (++slot == kSize) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace longspan::sm90
