// The split of a backward pass: its work items, and the order in which they are handed out.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/planner/walk.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {

// The order in which key tiles are handed out.
enum class KeyOrder : uint8_t { kOfMap, kByKeys, kFromLastKey, kHeaviestFirst, kLightestFirst };

struct BackwardSplit {
  int32_t parts = 1;       // items of a key tile, a divisor of the group; more if most_tiles asks for it
  int64_t most_tiles = 0;  // tiles of an item; 0: no limit
  KeyOrder order = KeyOrder::kOfMap;
  int32_t group_items = 0;  // as in BackwardSharing
  // Items of the last KV heads for each CTA, so that all CTAs end at the same time.
  int32_t last_rounds = h200::backward::kLastRounds;
  int32_t kv_heads = 1;  // worked on together, or more if that suits the GPU
  BackwardWalk walk{};
  bool by_time = false;  // additions follow a simulated run (planner/schedule.h)
  friend bool operator==(const BackwardSplit&, const BackwardSplit&) = default;
};

}  // namespace longspan::sm90
