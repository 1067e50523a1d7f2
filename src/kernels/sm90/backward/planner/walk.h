// The order in which an item's tiles are visited, and what it costs. Host code without CUDA.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/backward/planner/items.h"

namespace longspan::sm90 {

struct BackwardWalk {
  bool descending = false;  // from the last row up
  bool by_rows = false;  // all heads of an item at one row tile, then the next row tile; else head after head
  friend bool operator==(const BackwardWalk&, const BackwardWalk&) = default;
};

struct WalkedBy {
  int32_t rows = 64;  // queries of a row tile
  int32_t group = 1;  // query heads of a KV head
  int32_t workers = 1, kv_heads = 1;
  int32_t section_heads = 1, last_heads = 1;  // KV heads that are worked on together, and at the end
};

// The planner's cost of a walk in order: simulated time over the time in which no CTA waits and items have no
// beginning and end. 0 if there is too much to simulate. `items` are those of one KV head, in the order in
// which CTAs take them.
double time_walk(const CompiledMap& map, std::span<const BackwardWork> items, const BackwardWalk& walk,
                 const WalkedBy& by);

}  // namespace longspan::sm90
