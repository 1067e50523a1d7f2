// Which block takes which items, and in what order additions to dq are made, where both are those of a run of
// the blocks that is simulated: additions are in order, for the same bits on every run, and since the order
// is that of time, hardly anyone waits for his turn. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/walk.h"

namespace longspan::sm90 {

// As BackwardParams has them.
struct ScheduledBy {
  int32_t rows = 64;  // of a row tile
  int32_t row_tiles = 0;
  int32_t group = 1;    // query heads of a KV head
  int32_t workers = 1;  // streams of items, of blocks all of which must be resident at once
  int32_t streams = 1;  // of a block
  int32_t kv_heads = 1;
  int32_t section_heads = 1, last_section = 0, last_list = 0;
  bool per_head_masks = false;
  bool spread = false;  // visits to the same rows, as far as may be; each KV head has items of its own
};

struct BackwardSchedule {
  int32_t streams =
      0;  // of items, one or two in each block; 0: there is no schedule, they come from a counter
  std::vector<int32_t> next;    // [items]: which one a stream takes after this one; if none, at least `items`
  std::vector<int32_t> turns;   // of each tile and query head, in the order of the items' walks
  std::vector<uint32_t> first;  // [items.work]: where an item's turns begin, of KV head 0 if all share a mask
  // With `spread`, of each item: instead of the map's runs, and where they begin.
  std::vector<DeviceRun> runs;
  std::vector<uint32_t> first_run;
  uint32_t of_head = 0;  // from a KV head's turns to those of the next one; 0: heads have masks
};

// Tiles that are visited, each for every query head.
int64_t visits_of(const CompiledMap& map, const BackwardItems& items, const ScheduledBy& by);

// Nobody waits for ever. The simulation is one run in which each block goes through its items, and each item
// through its tiles, as the kernel does, and `turns` number the additions to a row tile as they happen there.
// Whatever the kernel's blocks wait for, an addition before their own to the same rows or dk and dv of
// the part before, comes earlier in that run, as does what they have to do themselves before they come to it.
// So of all that is not done the earliest can always be done, if only its block runs. Hence all blocks must
// be resident: the kernel is launched cooperatively, and a GPU or process that has fewer multiprocessors than
// the schedule was made for refuses. Blocks keep to their items, since one that took the next
// item early, from a counter, could be the one for which another waits that is to add to the same rows first.
BackwardSchedule schedule(const CompiledMap& map, const BackwardItems& items, const BackwardWalk& walk,
                          const ScheduledBy& by);

// How long that run takes, as time_walk has it.
double time_schedule(const CompiledMap& map, const BackwardItems& items, const BackwardWalk& walk,
                     const ScheduledBy& by);

}  // namespace longspan::sm90
