// The forward kernel's shape, its shared memory, and the messages between its warps.
#pragma once

#include <cstdint>

#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/isa/pair.cuh"
#include "kernels/sm90/isa/ptx.cuh"
#include "kernels/sm90/isa/ring_position.cuh"
#include "kernels/sm90/isa/wgmma.cuh"

namespace longspan::sm90 {

// One instance of the kernel.
template <class ElementT, int kHeadDimT, int kColumnsT, int kPieceT, int kStreamsT, int kConsumersT = 2,
          int kHeadDimVT = kHeadDimT>
struct ForwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;    // of q and k: 64, 128, 192 or 256
  static constexpr int kHeadDimV = kHeadDimVT;  // of v and o
  static constexpr int kColumns = kColumnsT;    // keys of a tile
  // keys of a tile of the map; a tile is gathered from kColumns / kPiece of these
  static constexpr int kPiece = kPieceT;
  static constexpr int kStreams = kStreamsT;  // independent streams of work items in a CTA
  static constexpr bool kMerges = false, kPaired = false;

  static constexpr int kPieces = kColumns / kPiece;
  static constexpr int kSteps = kColumns / kStepKeys;  // of a full tile
  // Widths, in keys, at which tiles are multiplied: a partial tile takes the smallest that holds its keys.
  static constexpr int kWidths = narrow_keys(kColumns) > 0 ? 2 : 1;
  static constexpr int width(int i) { return i == kWidths - 1 ? kColumns : narrow_keys(kColumns); }

  static constexpr int kConsumers = kConsumersT;             // warpgroups, 2 to 4
  static constexpr int kWarpgroups = kConsumers / kStreams;  // of a stream
  static constexpr int kThreads = 128 * (1 + kConsumers);
  // Whether a stream's warpgroups issue their products in turns. Four hide each other's waits better without.
  static constexpr bool kTakesTurns = kWarpgroups == 2 || kWarpgroups == 3;
  // Per thread, of two, three and four consumers. All warps start with the same number, and warpgroups can
  // only exchange registers. At head_dim 256 consumers would spill with 232; with 24 the load warp spills a
  // few words an item instead.
  static constexpr int kOfProducer[] = {kHeadDimV > 128 ? 24 : 40, 32, 24};
  static constexpr int kOfConsumer[] = {kHeadDimV > 128 ? 240 : 232, 160, 112};
  static constexpr int kProducerRegisters = kOfProducer[kConsumers - 2];
  static constexpr int kConsumerRegisters = kOfConsumer[kConsumers - 2];
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                    65536 / kThreads / 8 * 8 * (1 + kConsumers),
                "a warpgroup would wait for ever for more registers than the CTA starts with");

  // Above head_dim 128 there is room for one q, which the products read from shared memory. Each warpgroup
  // releases its rows when it has an item's last scores, and stores o straight from registers.
  static constexpr bool kLoneQuery = kHeadDim > 128;
  // Whether the next tile's note is read between this tile's products, and not behind the second one: better
  // with two streams alone.
  static constexpr bool kLooksEarly = kStreams == 2;
  // Operand a of the first product comes from registers if there are enough, which saves shared-memory
  // reads.
  static constexpr bool kQueryInRegisters = kConsumers == 2 && !kLoneQuery;
  // Two if the products read q from shared memory, since the next item's q is loaded meanwhile. With one,
  // the buffer holds the next item's q until it is read, then this item's o until it is stored.
  static constexpr int kQBuffers = kQueryInRegisters || kLoneQuery ? 1 : 2;
  // Items whose notes are kept: a warpgroup writes an item's o up to three items after the load warp has
  // noted it.
  static constexpr int kItemNotes = 4;

  static constexpr int kPanels = kHeadDim / kPanelColumns, kPanelsV = kHeadDimV / kPanelColumns;
  static constexpr uint32_t kQPanelBytes = 64 * kPanelRowBytes;  // of one warpgroup
  static constexpr uint32_t kQBytes = kQPanelBytes * kPanels;
  static constexpr uint32_t kKvPanelBytes = kColumns * kPanelRowBytes,
                            kPiecePanelBytes = kPiece * kPanelRowBytes;
  static constexpr uint32_t kKBytes = kKvPanelBytes * kPanels, kVBytes = kKvPanelBytes * kPanelsV;

  // The ring holds tiles of k and of v in the order in which they are multiplied and released: K0 | K1 V0 |
  // K2 V1 | ... It has as many slots as fit beside q and the barriers. If the tiles differ in size, those of
  // k have the even slots and those of v the odd ones.
  static constexpr bool kUneven = kKBytes != kVBytes;
  static constexpr uint32_t kSharedBytes = 227 * 1024, kBarrierBytes = 1024;
  static constexpr uint32_t kFreeBytes =
      kSharedBytes / kStreams - kBarrierBytes - kQBuffers * kWarpgroups * kQBytes;
  static constexpr int kSlots = kUneven ? kFreeBytes / (kKBytes + kVBytes) * 2 : kFreeBytes / kKBytes;
  static constexpr uint32_t kRingBytes = kUneven ? kSlots / 2 * (kKBytes + kVBytes) : kSlots * kKBytes;
  static __device__ uint32_t slot_offset(int slot) {
    return kUneven ? slot / 2 * (kKBytes + kVBytes) + slot % 2 * kKBytes : slot * kKBytes;
  }
  static constexpr int kSecondK = kUneven ? 2 : 1, kFirstV = kUneven ? 1 : 2;  // slots

  static_assert(kHeadDim % kPanelColumns == 0 && kHeadDimV % kPanelColumns == 0,
                "head_dim must be a multiple of 64");
  static_assert(kColumns % kStepKeys == 0 && kColumns <= 256,
                "a tile's keys are a multiple of 16, at most 256");
  static_assert(!kUneven || kColumns == kPiece, "tiles of k and v are gathered by the same lanes");
  static_assert(kColumns % kPiece == 0 && kPiece % kStepKeys == 0, "a tile is made of whole pieces");
  static_assert(kPieces * kPanels <= 32, "a lane loads a panel of a piece");
  static_assert(kStreams == 1 || (kStreams == 2 && kConsumers == 2), "two warpgroups make one stream or two");
  static_assert(kSlots >= 3, "two tiles of keys and one of values are in use at once");
};

// A CTA pair: a cluster of two CTAs whose row tiles see the same keys. Each loads half of the panels of every
// tile of K and V for both. The first CTA takes items from the counter and tells the other one their numbers.
template <class C>
struct Paired : C {
  static constexpr bool kPaired = true;
  static_assert(C::kPanels % 2 == 0 && C::kPanelsV == C::kPanels && C::kPieces == 1 && C::kStreams == 1,
                "each CTA of a pair loads half of the panels of a tile");
};

// The same instance, which merges its result with a partial result over other keys.
template <class C>
struct Merging : C {
  static constexpr bool kMerges = true;
};

// What the load warp tells the consumers about a tile of keys.
struct alignas(8) TileNote {
  TileCut cut;          // and flags; without layers, cut steps see nothing
  int32_t first_layer;  // of spans; with C::kLoneQuery also kLastTile
  __device__ bool is(uint32_t flag) const { return cut.bits & flag; }
  __device__ bool is_last() const { return first_layer < 0; }
};
inline constexpr int32_t kLastTile = INT32_MIN;  // of an item
enum TileFlags : uint32_t { kFirstTile = 1 << 5, kEndOfWork = 1 << 6, kNotRead = 1 << 7 };

struct alignas(16) ItemNote {
  int32_t token;      // the first token
  int32_t head_rows;  // the first head << kRowBits | the number of tokens
  int32_t end;        // no item: there is no more work
  __device__ int head() const { return head_rows >> kRowBits; }
  __device__ int rows() const { return head_rows & ((1 << kRowBits) - 1); }
  int32_t unused = 0;  // but by faults.cuh
};

template <class C>
struct StreamSharedMemory {
  alignas(1024) uint8_t q[C::kQBuffers][C::kWarpgroups][C::kQBytes];  // o leaves through the buffer of its q
  alignas(1024) uint8_t kv[C::kRingBytes];
};

template <class C>
struct StreamBarriers {
  // Of a warpgroup's rows. q_empty: their q is not needed any more; unless it is a lone one, o is there.
  Mbarrier q_full[C::kQBuffers][C::kWarpgroups], q_empty[C::kQBuffers][C::kWarpgroups];
  Mbarrier item_full[C::kItemNotes], item_empty[C::kItemNotes];
  Mbarrier full[C::kSlots], empty[C::kSlots];
  PairNumbers numbers[C::kPaired ? 1 : 0];
  TileNote tile[C::kSlots];      // of slots with a tile of k
  ItemNote item[C::kItemNotes];  // of the latest items
};

template <class C>
struct SharedMemoryPlan {
  StreamSharedMemory<C> stream[C::kStreams];
  StreamBarriers<C> barriers[C::kStreams];
};

}  // namespace longspan::sm90
