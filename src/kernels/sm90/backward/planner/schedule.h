// The order of additions to dq in a deterministic pass: that of items, or that of a simulated run of all
// CTAs, which is the order of time, so that additions rarely stall. Host code without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/walk.h"

namespace longspan::sm90 {

inline constexpr size_t kTurnsAtOnce = 32;  // read by a warp at a time: so many follow the last one

struct BackwardSchedule {
  // Streams of items, one or two for each CTA; 0: there is no schedule, and items come from a counter.
  int32_t streams = 0;
  std::vector<int32_t> next;   // [items]: the item that its stream takes next; `items` or more: none
  std::vector<int32_t> turns;  // of each tile and query head, in the order of the items' walks
  uint32_t of_head = 0;        // from a KV head's turns to the next one's; 0: each head has a mask
};

// Turns alone, which all heads of an item share. The key tiles that visit a row tile add to it in the order
// of the map, which is that in which CTAs take them. Each item walks down its rows or, with `descending`, up
// from the last one. Writes to the items where their turns begin. Throws longspan::Error for 2^32 tiles or
// more.
BackwardSchedule order_by_items(const CompiledMap& map, BackwardItems& items, bool descending);

// The items of each stream, and turns in the order of a simulated run. The schedule cannot deadlock. The
// simulation is a run in which each CTA goes through its items and tiles as in the kernel, and turns number
// the additions to a row tile in the order in which they happen. Whatever a CTA waits for (an earlier
// addition to the same rows, or dk and dv of the part before) comes earlier in that run, and so does the
// CTA's own work before it. So the earliest step that is not done can always be done, provided that its CTA
// runs. That is why all CTAs must be resident: the launch is cooperative, and it fails on a GPU or in a
// process with fewer SMs than the schedule was made for. And it is why CTAs keep to their items: one that
// took the next item early, from a counter, might be the one that another waits for.
//
// Writes to the items where their turns begin: those of KV head 0 if all heads share a mask. With
// `by.spread`, each item gets runs of its own in place of the map's. Throws longspan::Error for 2^31
// additions or more.
BackwardSchedule schedule(CompiledMap& map, BackwardItems& items, const BackwardWalk& walk,
                          const SimulatedBy& by);

// The time of that run, over the time in which no CTA waits, as in time_walk.
double time_schedule(const CompiledMap& map, const BackwardItems& items, const BackwardWalk& walk,
                     const SimulatedBy& by);

}  // namespace longspan::sm90
