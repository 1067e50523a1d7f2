// The tile shape of the backward kernel, chosen by the problem alone.
#pragma once

#include <cstdint>
#include <optional>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/split.h"
#include "mask/lowering/tile_map.h"

namespace longspan::sm90 {

// How a tile's share of dq is added to its sum in global memory.
enum class BackwardStore : uint8_t {
  kRegisters,  // by the threads that hold it, to zeros
  kAdded,      // by the copy engine, from shared memory, to zeros: nobody waits for anybody
  kClaimed,    // likewise, but the first to come to a tile stores what the others add to
  kOrdered,    // likewise, one key tile after the other (planner/turns.h), or as a simulated run has it
               // (planner/schedule.h): the same bits on every run
};

// What decides how work is best divided.
enum class BackwardKind : uint8_t {
  kScattered,  // rows see blocks of keys here and there, or heads have masks of their own
  kBlocks,     // of blocks, of which rows see one, or neighbours
  kLong,       // many rows see a mean key
  kOneBand,    // few do, in one band
  kBands,      // few do: documents
};

// Whether the second warpgroup leaves out products of tiles whose rows see none of its keys.
enum class BackwardRest : uint8_t { kNever, kAlways, kWherePays };

inline constexpr int kAsSuits = -1;  // BackwardShape::pass_ctas

// An instance of the kernel, and what else is chosen for all of its items.
struct BackwardShape {
  BackwardKind kind = BackwardKind::kLong;
  int rows = 64;   // queries of a tile, or 80
  int keys = 128;  // of a tile: of two warpgroups together; or 64, and each has work items of its own
  BackwardStore store = BackwardStore::kClaimed;
  bool in_rows = true;    // dq's sums lie in rows, not as threads hold them: tiles of rows may begin anywhere
  int section_units = 0;  // parts of groups that are worked on together; 0: as suits the GPU
  bool aligned = true;    // tiles may begin where the mask's bands do
  int join_tiles =
      0;  // full row tiles at an item's beginning, from which it begins where others are; 0: none does
  // Blocks that do the passes before and after the kernel while the others compute, where can_do_passes
  // allows it; 0: the passes are kernels of their own; kAsSuits: backward_pass_ctas.h chooses.
  int pass_ctas = 0;
  // Where can_rest allows it; kWherePays: planner/arrangement.h chooses.
  BackwardRest rest = BackwardRest::kNever;
  bool by_time = true;  // kOrdered may be the order of a simulated run, where that is faster
  std::optional<BackwardSplit> split = std::nullopt;  // instead of what planner/choose_split.h chooses

  TileShape tile_shape() const { return {keys, rows}; }  // of the transposed mask
  friend bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

BackwardShape choose_backward_shape(const Problem& problem);

// Whether instances of such a shape can do the passes, with the problem's masks.
bool can_do_passes(const Problem& problem, const BackwardShape& shape);
// Whether there is an instance of such a shape whose second warpgroup rests.
bool can_rest(const Problem& problem, const BackwardShape& shape);

}  // namespace longspan::sm90
