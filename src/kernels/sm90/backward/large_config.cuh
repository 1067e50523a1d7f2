// The backward kernel above head_dim 128: its shape and its shared memory (large_kernel.cuh has the tile
// plan).
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/isa/pair.cuh"

namespace longspan::sm90 {

// One instance of the kernel, for CTA pairs.
template <class ElementT, int kHeadDimT, int kHeadDimVT, BackwardStore kStoreT>
struct LargeBackwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;    // of q and k
  static constexpr int kHeadDimV = kHeadDimVT;  // of v and o
  static constexpr int kRows = 64, kKeys = 64;  // of a CTA's tile: queries, keys
  static constexpr int kStreams = 1, kConsumers = 2, kWarpgroups = 2;
  static constexpr bool kPaired = true;
  static constexpr BackwardStore kStore = kStoreT;
  static constexpr bool kOrdered = kStore == BackwardStore::kOrdered;
  static constexpr bool kInAnyOrder = !kOrdered, kKeepsTurns = false;
  static constexpr bool kScheduled = false, kPasses = false, kClaimed = false;

  static constexpr int kPanels = kHeadDim / kPanelColumns, kPanelsV = kHeadDimV / kPanelColumns;
  static constexpr uint32_t kKvPanelBytes = kKeys * kPanelRowBytes, kRowPanelBytes = kRows * kPanelRowBytes;
  static constexpr uint32_t kKBytes = kKvPanelBytes * kPanels;
  static constexpr uint32_t kQBytes = kRowPanelBytes * kPanels, kDoBytes = kRowPanelBytes * kPanelsV;
  static constexpr uint32_t kStatsBytes = 2 * kRows * sizeof(float);
  static constexpr uint32_t kSpansBytes = kKeys * sizeof(uint32_t);
  static constexpr int kQStages = kHeadDim > 192 ? 2 : 3, kDoStages = kQStages;
  static constexpr int kDsBuffers = 2;
  // Where shared memory is full, the second warpgroup keeps the first panels of V in registers.
  static constexpr int kVPanelsKept = kHeadDim > 192 ? kPanelsV / 2 : 0, kVStepsKept = 4 * kVPanelsKept;
  static constexpr uint32_t kVBytes = kKvPanelBytes * (kPanelsV - kVPanelsKept);

  // dq^T is computed in products of 64 of head_dim, a panel of k, by a pair's four warpgroups. The second
  // ones share the middle one of three panels: each computes half of the rows.
  static constexpr bool kSharesPanel = kPanels == 3;
  static constexpr int kDqRowsOfSecond = kSharesPanel ? kRows / 2 : kRows;
  static __device__ int dq_panel(int rank, int warpgroup) {
    return kSharesPanel && warpgroup == 1 ? 1 : 2 * rank + warpgroup;
  }
  // Those panels of the other CTA's k.
  static constexpr uint32_t kOtherKBytes = kKvPanelBytes * kWarpgroups;

  static constexpr int kThreads = 128 * (1 + kConsumers);
  // With 232 consumers of head_dim 256 have too few; with 24 the load warp spills.
  static constexpr int kProducerRegisters = kHeadDim > 192 ? 24 : 40;
  static constexpr int kConsumerRegisters = kHeadDim > 192 ? 240 : 232;
  // Whether the load warp keeps the thread's index (thread_index.cuh). 192/128 would lose 5 %.
  static constexpr bool kKeepsLane = kHeadDim > 192;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                    (1 + kConsumers) * (65536 / kThreads / 8 * 8),
                "more registers than a CTA has");
  static_assert(kHeadDim % kPanelColumns == 0 && kHeadDimV % kPanelColumns == 0,
                "head_dim must be a multiple of 64");
  static_assert(kPanels == 3 || kPanels == 4, "four warpgroups compute three or four panels of dq");
  static_assert(kOrdered || kStore == BackwardStore::kAdded, "dq is added by TMA, to zeros or in order");
  static_assert(64 * kRows * sizeof(float) == 2 * kRowPanelBytes && 2 * kRowPanelBytes <= kDoBytes,
                "a warpgroup's share of dq takes the place of a pair's ds, or of do");
};

template <class Element, int kHeadDim, int kHeadDimV, BackwardStore kStore>
struct BackwardStreamMemory<LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>> {
  using C = LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>;
  alignas(1024) uint8_t k[C::kKBytes];
  alignas(1024) uint8_t other_k[C::kOtherKBytes];  // the panels of dq_panel(), for each warpgroup
  alignas(1024) uint8_t v[C::kVBytes];             // the last panels
  alignas(1024) uint8_t q[C::kQStages][C::kQBytes];
  alignas(1024) uint8_t dout[C::kDoStages][C::kDoBytes];
  alignas(1024) uint8_t ds[C::kDsBuffers][2][C::kRowPanelBytes];  // [CTA of the pair][rows][64 keys]
};

template <class Element, int kHeadDim, int kHeadDimV, BackwardStore kStore>
struct BackwardStreamState<LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>> {
  using C = LargeBackwardConfig<Element, kHeadDim, kHeadDimV, kStore>;
  alignas(16) float stats[C::kQStages][2][C::kRows];  // in the order of stats_index
  alignas(16) uint32_t spans[C::kQStages][C::kKeys];  // of a partial tile of one layer
  BackwardNote note[C::kQStages];
  int32_t turn[C::kQStages];  // of dq's addition; C::kInAnyOrder: 0. -1: nothing is added
  // Slots that both CTAs load are empty in both: other_q_empty says so of the other one's.
  Mbarrier q_full[C::kQStages], q_empty[C::kQStages], other_q_empty[C::kQStages];
  Mbarrier do_full[C::kDoStages], do_empty[C::kDoStages];
  Mbarrier k_full, k_empty, v_full, v_empty;
  // dv's product has read do, so the second warpgroup's dq may take its place; and it has.
  Mbarrier dv_done[C::kDoStages], second_dq_full[C::kDoStages];
  // A buffer of ds holds P first, then ds of both CTAs. Once dq's products and the other CTA have read it
  // (ds_read), it holds the first warpgroup's dq. It is empty if it is so in both CTAs.
  Mbarrier p_full[C::kDsBuffers], ds_full[C::kDsBuffers], other_ds_full[C::kDsBuffers];
  Mbarrier ds_read[C::kDsBuffers], first_dq_full[C::kDsBuffers], ds_empty[C::kDsBuffers];
  PairNumbers numbers;
  int32_t arrived[C::kWarpgroups];  // items of these keys that arrived before this one
};

template <class C>
struct LargeBackwardMemory {
  BackwardStreamMemory<C> memory;
  BackwardStreamState<C> state;
};

}  // namespace longspan::sm90
