// The split of the last wave: its items are split by keys, so that no CTA pair has an item more than others.
// Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/forward/planner/work_order.h"

namespace longspan::sm90 {

// A part of an item. The parts of an item are numbered by their keys, in ascending order.
struct alignas(16) ItemPart {
  MapRow row;  // with the entries and the cost of this part alone
  int32_t unit = 0;
  int32_t part = 0, parts = 1;  // of the item; 1: the item is whole
  int32_t slot = 0;             // scratch slot of the item's first part
};
static_assert(sizeof(ItemPart) == 32);

struct ForwardSplit {
  int32_t whole_items = 0;        // these come first in the order of work; the others are in `parts`
  std::vector<ItemPart> parts;    // in the order in which they are handed out
  std::vector<MapEntry> entries;  // of the parts, whose rows index into this list
  int32_t slots = 0;              // of partial results in scratch memory
  bool has_parts() const { return !parts.empty(); }
};

// The share of the kernel's time that a split of the last wave saves, if all items have `tiles` tiles; 0 if
// it is too little.
double time_saved_by_split(int64_t items, int64_t tiles, int64_t workers);

// Splits the last wave of a map with tiles of `columns` keys, gathered ones excluded. Splits nothing if items
// differ in cost or if too little would be saved. Worker w takes items w, w + workers, ...
ForwardSplit split_last_wave(const ForwardMap& map, const WorkOrder& order, int32_t columns, int32_t workers);

}  // namespace longspan::sm90
