// In what order the tiles of an item are gone through. Host code without CUDA.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/backward_items.h"

namespace longspan::sm90 {

struct BackwardWalk {
  bool descending = false;  // from the last row up
  bool by_rows = false;     // all heads of an item at a row tile before the next one, not head after head
  friend bool operator==(const BackwardWalk&, const BackwardWalk&) = default;
};

// The walk in which blocks find most rows in L2, where their neighbours have just been, and, if additions are
// ordered, wait least for each other. `items` are those of one KV head in the order in which `workers` blocks
// take them; the map's tiles have `rows` queries.
BackwardWalk choose_walk(const CompiledMap& map, std::span<const BackwardWork> items, int32_t rows,
                         int32_t group, int32_t workers, bool ordered);

}  // namespace longspan::sm90
