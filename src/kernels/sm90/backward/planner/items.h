// What the backward kernel's blocks take from the counter, one after the other: key tiles with some of the
// query heads of a KV head, the heaviest first. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/backward/planner/grid.h"

namespace longspan::sm90 {

// Beside the number in a partial tile's code (compiled_map.h): its rows see none of the upper half of its
// keys.
inline constexpr int32_t kUpperHalfUnseen = 1 << 29;

// One item of a KV head.
struct alignas(16) BackwardWork {
  int32_t key_tile = 0;
  uint32_t first_run = 0;
  int32_t runs = 0;                   // 0: no row sees a key of the tile
  uint32_t first_turn = 0;            // BackwardStore::kOrdered
  int32_t first_key = 0;              // the token with which the tile begins
  int32_t first_head = 0, heads = 0;  // of the group's query heads
  int32_t part = 0;                   // number of the item among those of its key tile
};

// A key tile of a KV head.
struct alignas(16) BackwardKeyTile {
  int32_t first = 0, count = 0;  // keys
  int32_t parts = 1;             // items; if there are several, their dk and dv are summed in fp32
  int32_t unused = 0;
};

struct BackwardItems {
  int32_t per_list = 0;
  int32_t lists = 1;                       // 2: of the second, which KV heads that come last use
  std::vector<BackwardWork> work;          // [masks, lists, per_list]
  std::vector<BackwardKeyTile> key_tiles;  // [masks, key tiles]
  bool shared = false;                     // some key tile has several items
};

// How a key tile's query heads are shared out, and in what order items are taken.
struct BackwardSharing {
  int32_t group = 1;       // query heads of a KV head
  int32_t parts = 1;       // items of every key tile, a divisor of the group
  int64_t most_tiles = 0;  // of an item; one that has more is divided further; 0: any number
  // 0: in the order of the map, `heads_at_once` query heads side by side, and `last_heads` at the end, where
  // many short items let all blocks end together. Else the first list goes through the map in groups of so
  // many items, head by head; the second takes the heaviest first.
  int32_t group_items = 0;
  int32_t heads_at_once = 1, last_heads = 1;
};

// Key tiles in the order of the map.
BackwardItems share_out(const BackwardGrid& grid, const BackwardSharing& sharing);

}  // namespace longspan::sm90
