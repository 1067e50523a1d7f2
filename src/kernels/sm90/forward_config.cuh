// The forward kernel's shape, its shared memory, and what its warps tell each other.
#pragma once

#include <cstdint>

#include "kernels/sm90/forward_map.h"
#include "kernels/sm90/ptx.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace longspan::sm90 {

// The shape of one instance of the kernel.
template <class ElementT, int kHeadDimT, int kColumnsT, int kStreamsT, int kKStagesT, int kVStagesT,
          bool kQueryInRegistersT, bool kNarrowT>
struct ForwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;  // 64 or 128
  static constexpr int kColumns = kColumnsT;  // keys of a tile
  static constexpr int kStreams = kStreamsT;  // independent streams of work items in a block
  static constexpr int kKStages = kKStagesT, kVStages = kVStagesT;  // of the rings
  // Operand a of the first product comes from registers, where they suffice: it spares the shared memory's
  // reads.
  static constexpr bool kQueryInRegisters = kQueryInRegistersT;
  // The widths, in keys, at which tiles are multiplied: a partial tile at the least that holds its keys.
  static constexpr int kWidths = kNarrowT ? 2 : 1;
  static constexpr int width(int i) { return i == kWidths - 1 ? kColumns : kColumns / 2; }
  static constexpr int kQBuffers = 2;
  static constexpr int kSteps = kColumns / kStepKeys;  // of a whole tile

  static constexpr int kConsumers = 2;                       // warpgroups
  static constexpr int kWarpgroups = kConsumers / kStreams;  // of a stream
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr uint32_t kQPanelBytes = 64 * kPanelRowBytes;  // of one warpgroup
  static constexpr uint32_t kQBytes = kQPanelBytes * kPanels;
  static constexpr uint32_t kKvPanelBytes = kColumns * kPanelRowBytes;
  static constexpr uint32_t kKvBytes = kKvPanelBytes * kPanels;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;  // a thread

  static_assert(kHeadDim % kPanelColumns == 0, "head_dim must be a multiple of 64");
  static_assert(kColumns % 16 == 0 && kColumns <= 256, "a tile's keys are a multiple of 16, at most 256");
  static_assert(kStreams == 1 || kStreams == 2, "two warpgroups make one stream or two");
};

// What the load warp tells the consumers about a tile of keys.
struct alignas(8) TileNote {
  TileCut cut;          // with flags; no layers and cut steps: nothing is visible
  int32_t first_layer;  // of spans
  __device__ bool is(uint32_t flag) const { return cut.bits & flag; }
};
enum TileFlags : uint32_t { kFirstTile = 1 << 5, kEndOfWork = 1 << 6, kNotRead = 1 << 7 };

struct alignas(16) ItemNote {
  int32_t token, head;  // the first of each
  int32_t end;          // not an item: there is no more work
  int32_t unused;
};

template <class C>
struct StreamSharedMemory {
  alignas(1024) uint8_t q[C::kQBuffers][C::kWarpgroups][C::kQBytes];  // o leaves through the buffer of its q
  alignas(1024) uint8_t k[C::kKStages][C::kKvBytes];
  alignas(1024) uint8_t v[C::kVStages][C::kKvBytes];
};

template <class C>
struct StreamBarriers {
  Mbarrier q_full[C::kQBuffers], q_empty[C::kQBuffers], o_full[C::kQBuffers];
  Mbarrier k_full[C::kKStages], k_empty[C::kKStages], v_full[C::kVStages], v_empty[C::kVStages];
  TileNote tile[C::kKStages];
  ItemNote item[C::kQBuffers];
};

template <class C>
struct SharedMemoryPlan {
  StreamSharedMemory<C> stream[C::kStreams];
  StreamBarriers<C> barriers[C::kStreams];
};

// A position in a ring of kSize slots, with the parity of the passes over it.
template <int kSize>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSize) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace longspan::sm90
