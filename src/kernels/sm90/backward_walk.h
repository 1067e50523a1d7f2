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

struct TimedWalk {
  BackwardWalk walk;
  double time = 0;  // over that in which all blocks would be done if none waited and items had no ends
};

// The walk in which blocks wait least for each other's additions, if these are ordered. `items` are those of
// one KV head in the order in which `workers` blocks take them; the map's tiles have `rows` queries.
TimedWalk choose_walk(const CompiledMap& map, std::span<const BackwardWork> items, int32_t rows,
                      int32_t group, int32_t workers);

}  // namespace longspan::sm90
