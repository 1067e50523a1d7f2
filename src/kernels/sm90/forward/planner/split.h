// How the last items of a launch are divided by keys, so that no worker has an item more than others. Host
// code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/forward/planner/work_order.h"

namespace longspan::sm90 {

// A part of an item. Parts of one item are numbered by their keys, from left to right.
struct alignas(16) ItemPart {
  MapRow row;  // whose entries are of this part alone; `cost` as well
  int32_t unit = 0;
  int32_t part = 0, parts = 1;  // of the item; 1: it is not divided
  int32_t slot = 0;             // of the first part's partial result, among those of all divided items
};
static_assert(sizeof(ItemPart) == 32);

struct ForwardSplit {
  int32_t whole_items = 0;        // the first ones in the order of work; the others are in `parts`
  std::vector<ItemPart> parts;    // in the order in which they are handed out
  std::vector<MapEntry> entries;  // of these; their rows count from the first of these
  int32_t slots = 0;              // partial results
  bool has_parts() const { return !parts.empty(); }
};

// The share of a launch's time, of items of so many tiles each, that it spares to divide the last ones. 0:
// they are not to be, as it would be too little.
double time_saved_by_split(int64_t items, int64_t tiles, int64_t workers);

// Divides nothing where items are not of equal cost, or where too little would be spared. Worker w takes
// items w, w + workers, ... For maps of tiles of `columns` keys, not of pieces.
ForwardSplit split_last_wave(const ForwardMap& map, const WorkOrder& order, int32_t columns, int32_t workers);

}  // namespace longspan::sm90
