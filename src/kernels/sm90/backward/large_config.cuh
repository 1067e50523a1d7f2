// The backward kernel above head_dim 128: its shape and its shared memory (large_kernel.cuh has the tile
// plan).
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"

namespace longspan::sm90 {

// One instance of the kernel.
template <class ElementT, int kHeadDimT, int kHeadDimVT, BackwardStore kStoreT>
struct LargeBackwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;    // of q and k
  static constexpr int kHeadDimV = kHeadDimVT;  // of v and o
  static constexpr int kRows = 64, kKeys = 64;  // of a tile: queries, keys
  static constexpr int kStreams = 1, kConsumers = 2, kWarpgroups = 2;
  static constexpr BackwardStore kStore = kStoreT;
  static constexpr bool kOrdered = kStore == BackwardStore::kOrdered, kKeepsTurns = kOrdered;
  // TMA adds dq from the rows of do and q that its tile has done with: a warpgroup's share is as large. At
  // 192/128 it is larger, and threads add it from registers; so they do in turns, which the rows would await.
  static constexpr bool kBulk = kStore == BackwardStore::kAdded;
  static constexpr bool kInAnyOrder = !kOrdered;
  static constexpr bool kScheduled = false, kPasses = false, kClaimed = false, kSkips = false;
  static constexpr bool kSpansArrive = true;
  // q and do of an item's first tile are loaded while K and V of the item before are still in use.
  static constexpr bool kRowsFirst = true;

  static constexpr int kPanels = kHeadDim / kPanelColumns, kPanelsV = kHeadDimV / kPanelColumns;
  static constexpr uint32_t kKvPanelBytes = kKeys * kPanelRowBytes, kRowPanelBytes = kRows * kPanelRowBytes;
  static constexpr uint32_t kKBytes = kKvPanelBytes * kPanels, kVBytes = kKvPanelBytes * kPanelsV;
  static constexpr uint32_t kQBytes = kRowPanelBytes * kPanels, kDoBytes = kRowPanelBytes * kPanelsV;
  static constexpr uint32_t kStatsBytes = 2 * kRows * sizeof(float);
  static constexpr uint32_t kSpansBytes = kKeys * sizeof(uint32_t);
  static constexpr int kQStages = kHeadDim > 192 ? 2 : 3, kDoStages = kQStages, kJobs = kQStages;
  static constexpr int kPBuffers = 2, kDsBuffers = 2;

  // dq^T is computed in products of 64 of head_dim: the first ones by the first warpgroup.
  static constexpr int kDqOfFirst = (kPanels + 1) / 2, kDqOfSecond = kPanels - kDqOfFirst;

  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  // Whether the load warp keeps the thread's index (thread_index.cuh). 192/128 would lose 5 %.
  static constexpr bool kKeepsLane = kHeadDim > 192;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                    (1 + kConsumers) * (65536 / kThreads / 8 * 8),
                "more registers than a CTA has");
  static_assert(kHeadDim % kPanelColumns == 0 && kHeadDimV % kPanelColumns == 0,
                "head_dim must be a multiple of 64");
  static_assert(kBulk || kOrdered || kStore == BackwardStore::kRegisters,
                "dq is added by TMA, or from registers");
  static_assert(!kBulk || (kDqOfFirst * 64 * kRows * sizeof(float) == kDoBytes &&
                           kDqOfSecond * 64 * kRows * sizeof(float) == kQBytes && kQStages == kDoStages),
                "a share of dq takes the place of a tile's rows, and both rings are as long");
};

template <class Element, int kHeadDim, int kHeadDimV, BackwardStore kStore>
struct BackwardStreamMemory<LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>> {
  using C = LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>;
  alignas(1024) uint8_t k[C::kKBytes];
  alignas(1024) uint8_t v[C::kVBytes];
  alignas(1024) uint8_t q[C::kQStages][C::kQBytes];
  alignas(1024) uint8_t dout[C::kDoStages][C::kDoBytes];
  alignas(1024) uint8_t ds[C::kDsBuffers][C::kRowPanelBytes];  // [rows][64 keys]
  uint4 p[C::kPBuffers][C::kRows / 16][128];                   // as threads hold it: four words a step
};

template <class Element, int kHeadDim, int kHeadDimV, BackwardStore kStore>
struct BackwardStreamState<LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>> {
  using C = LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>;
  alignas(16) float stats[C::kQStages][2][C::kRows];  // in the order of stats_index
  alignas(16) uint32_t spans[C::kQStages][C::kKeys];  // of a partial tile of one layer
  BackwardNote note[C::kQStages];
  DqJob job[C::kQStages];
  Mbarrier q_full[C::kQStages], q_empty[C::kQStages];
  Mbarrier do_full[C::kDoStages], do_empty[C::kDoStages];
  Mbarrier k_full, k_empty, v_full, v_empty;
  Mbarrier p_full[C::kPBuffers], p_empty[C::kPBuffers];
  Mbarrier ds_full[C::kDsBuffers], ds_empty[C::kDsBuffers];
  Mbarrier dq_full[C::kWarpgroups][C::kQStages];  // C::kBulk: a share of dq is in the rows' place
  int32_t arrived[C::kWarpgroups];                // items of these keys that arrived before this one
  // C::kKeepsTurns: the turn of a tile of dq, which has come; and that a warpgroup's share has been added.
  int32_t turn[C::kWarpgroups];
  Mbarrier turn_come[C::kWarpgroups], dq_added[C::kWarpgroups];
};

template <class C>
struct LargeBackwardMemory {
  BackwardStreamMemory<C> memory;
  BackwardStreamState<C> state;
};

}  // namespace longspan::sm90
