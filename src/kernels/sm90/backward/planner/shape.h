// The shape of the backward kernel, chosen from the problem alone, and the split of its work into items.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/walk.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/lowering/tile_map.h"

namespace longspan::sm90 {

// dQ accumulation: how a tile's share of dq is added to its fp32 sum in global memory.
enum class BackwardStore : uint8_t {
  kRegisters,  // red.add by the threads that hold it, to zeros
  kAdded,      // by TMA from shared memory, to zeros: no CTA waits
  kClaimed,    // by TMA; the first CTA to come to a tile stores its share, the others add to it
  // By TMA in a fixed order, which makes the pass deterministic (planner/schedule.h).
  kOrdered,
};

// Classes of masks that are split alike.
enum class BackwardKind : uint8_t {
  kScattered,  // rows see blocks of keys here and there, or each KV head has a mask
  kBlocks,     // blocks, of which a row sees one or neighbours
  kLong,       // a mean key is seen by many rows
  kOneBand,    // by few rows, in one band
  kBands,      // by few rows: documents
};

// The order in which key tiles are handed out.
enum class KeyOrder : uint8_t { kOfMap, kByKeys, kFromLastKey, kHeaviestFirst };

struct BackwardSplit {
  int32_t parts = 1;       // items of a key tile, a divisor of the group; more if most_tiles asks for it
  int64_t most_tiles = 0;  // tiles of an item; 0: no limit
  KeyOrder order = KeyOrder::kOfMap;
  int32_t group_items = 0;  // as in BackwardSharing
  // Items of the last KV heads for each CTA, so that all CTAs end at the same time.
  int32_t last_rounds = h200::backward::kLastRounds;
  int32_t last_pieces = 1;  // of each item of the last KV heads, by rows
  int32_t kv_heads = 1;     // worked on together, or more if that suits the GPU
  BackwardWalk walk{};
  bool by_time = false;  // additions follow a simulated run (planner/schedule.h)
  friend bool operator==(const BackwardSplit&, const BackwardSplit&) = default;
};

inline constexpr int kAsSuits = -1;  // BackwardShape::pass_ctas: planner/pass_ctas.h chooses

// An instance of the kernel, and what else holds for all items.
struct BackwardShape {
  BackwardKind kind = BackwardKind::kLong;
  int rows = 64;  // queries of a tile: 64, 80 or 128
  // keys of a tile: 128 of two warpgroups or CTAs, 192 of three; 64: each warpgroup has work items of its own
  int keys = 128;
  BackwardStore store = BackwardStore::kClaimed;
  // sums of dq lie in token rows, so row tiles may begin anywhere; else as threads hold them
  bool in_rows = true;
  // Instances above head_dim 128 (large_kernel.cuh): a CTA pair shares tiles of 128 keys.
  bool large = false;
  // In units of an item's heads: those worked on together, but one unit if L2 does not hold the rows of more;
  // 0: as suits the GPU.
  int section_units = 0;
  bool aligned = true;  // tiles may begin at edges of bands
  // CTAs that do the passes before and after the kernel while the others compute, if can_do_passes allows
  // it. 0: separate kernels do them.
  int pass_ctas = 0;
  bool any_tile = false;  // arrange_backward may take other_tile() if it is faster
  bool by_time = true;    // kOrdered may follow a simulated run if that is faster
  std::optional<BackwardSplit> split = std::nullopt;  // in place of what planner/choose_split.h chooses

  int streams() const { return keys == 64 ? 2 : 1; }  // of work items in a CTA
  int ctas() const { return large ? 2 : 1; }          // of a work item
  int64_t workers(int64_t units) const { return std::max<int64_t>(units * streams() / ctas(), 1); }
  int warpgroups() const { return keys == h200::backward::kWidestKeys ? 3 : 2 * ctas(); }  // that compute
  // Whether a warpgroup passes over tiles in which none of its 64 keys is seen.
  bool skips_parts() const { return !large && rows == 64 && (keys == 192 || (keys == 128 && in_rows)); }
  // Whether it writes dq of row tiles that one key tile comes to.
  bool writes_dq() const { return store == BackwardStore::kClaimed && in_rows && skips_parts(); }
  TileShape tile_shape() const { return {keys, rows}; }  // of the transposed mask
  friend bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

// Depends on the problem alone. Which of two tiles is faster depends on the GPU, too: any_tile.
BackwardShape choose_backward_shape(const Problem& problem);

// With the other tile of its head_dim: 64 or 80 rows of 128; of 64, 64 rows by 192 keys or 128 by 128, but in
// windows 64 rows by 192 or 128 keys.
BackwardShape other_tile(BackwardShape shape);

// Whether instances of this shape can do the passes. Only for one mask: nobody does the items that pad lists.
bool can_do_passes(const Problem& problem, const BackwardShape& shape);

}  // namespace longspan::sm90
