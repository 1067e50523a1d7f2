// How the work of a backward pass is split into work items, and in what order they are handed out.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/planner/walk.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {

// In which order key tiles are handed out.
enum class KeyOrder : uint8_t { kOfMap, kByKeys, kFromLastKey, kHeaviestFirst, kLightestFirst };

struct BackwardSplit {
  int32_t parts = 1;  // items of a key tile, a divisor of the group, or more where one would be too long:
  int64_t most_tiles = 0;  // of an item; 0: any number
  KeyOrder order = KeyOrder::kOfMap;
  int32_t group_items = 0;                            // as BackwardSharing has it
  int32_t last_rounds = h200::backward::kLastRounds;  // items of the last KV heads for each block, so that
                                                      // all blocks end together
  int32_t kv_heads = 1;  // that are worked on together, or more as it suits the GPU
  BackwardWalk walk{};
  bool by_time = false;  // additions are in the order of a simulated run (planner/schedule.h)
  friend bool operator==(const BackwardSplit&, const BackwardSplit&) = default;
};

}  // namespace longspan::sm90
