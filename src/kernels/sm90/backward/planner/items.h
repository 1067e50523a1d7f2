// The backward kernel's work items: a key tile with some query heads of its KV head. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/backward/planner/grid.h"

namespace longspan::sm90 {

// One work item of a KV head.
struct alignas(16) BackwardWork {
  int32_t key_tile = 0;
  uint32_t first_run = 0;
  int32_t runs = 0;                   // 0: no row sees a key of the tile
  uint32_t first_turn = 0;            // BackwardStore::kOrdered only
  int32_t first_key = 0;              // first token of the tile
  int32_t first_head = 0, heads = 0;  // query heads of the group
  int32_t part = 0;                   // its number among the items of its key tile
};

// A key tile of a KV head.
struct alignas(16) BackwardKeyTile {
  int32_t first = 0, count = 0;  // keys
  int32_t parts = 1;             // items; if there are several, their dk and dv are summed in fp32
  int32_t unused = 0;
};

struct BackwardItems {
  int32_t per_list = 0;
  int32_t per_last = 0;                    // items of the list that the last KV heads use
  int32_t lists = 1;                       // 2: the last KV heads use the second list
  std::vector<BackwardWork> work;          // [masks, lists, per_list]; cut_by_rows: per_list, then per_last
  std::vector<BackwardKeyTile> key_tiles;  // [masks, key tiles]; cut_by_rows: [lists, key tiles]
  bool shared = false;                     // some key tile has several items in the first list

  int32_t per_mask() const { return per_list * lists; }
};

// How the query heads of a key tile are split into items, and the order of the items.
struct BackwardSharing {
  int32_t group = 1;       // query heads of a KV head
  int32_t parts = 1;       // items of each key tile, a divisor of the group
  int64_t most_tiles = 0;  // tiles of an item; key tiles with more are split further; 0: no limit
  // 0: in the order of the map, `heads_at_once` query heads side by side, and the last `last_heads`
  // together, where many short items let all CTAs end at the same time. Otherwise the first list goes
  // through the map in groups of `group_items` items, head by head, and the second list has documents
  // together, the heaviest first, but light items of all documents at its end.
  int32_t group_items = 0;
  int32_t heads_at_once = 1, last_heads = 1;
};

// The items of a key tile that visits `tiles` row tiles: a divisor of the group from sharing.parts on, the
// first whose items do not have too many tiles.
int32_t parts_of(int64_t tiles, const BackwardSharing& sharing);

// Key tiles come in the order of the map. Throws longspan::Error if sharing.parts does not divide the group.
BackwardItems share_out(const BackwardGrid& grid, const BackwardSharing& sharing);

// Gives the last KV heads of a problem with one mask a list of their own: the items of the first list, each
// in up to `pieces` items with a stretch of its row tiles. Their runs are added to the map.
void cut_by_rows(CompiledMap& map, int32_t pieces, BackwardItems& items);

}  // namespace longspan::sm90
