// The order in which an item's tiles are visited, and what it costs. Host code without CUDA.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/pass_ctas.h"

namespace longspan::sm90 {

struct BackwardWalk {
  bool descending = false;  // from the last row up
  bool by_rows = false;  // all heads of an item at one row tile, then the next row tile; else head after head
  friend bool operator==(const BackwardWalk&, const BackwardWalk&) = default;
};

// Calls visit(row tile) for the tiles of an item's runs: of a BackwardWork or a WorkRow.
template <class Item, class Visit>
void for_each_row_tile(const CompiledMap& map, const Item& item, bool descending, const Visit& visit) {
  for (int32_t i = 0; i < item.runs; ++i) {
    const DeviceRun& run = map.runs[item.first_run + (descending ? item.runs - 1 - i : i)];
    const int32_t first = map.first_tile(run), tiles = tiles_of(run);
    for (int32_t t = 0; t < tiles; ++t) visit(first + (descending ? tiles - 1 - t : t));
  }
}

// Visits to tiles, of all query heads.
int64_t visits_of(const CompiledMap& map, std::span<const BackwardWork> items);

// What a simulated run depends on beside the items and their walk, as in BackwardParams.
struct SimulatedBy {
  double l2_visits = 0;  // visits whose rows L2 holds; 0: all rows are taken to be there
  BackwardSections sections{};
  int32_t workers = 1;  // streams of items, in CTAs that are all resident
  int32_t streams = 1;  // of a CTA
  int32_t last_list = 0;
  bool per_head_masks = false;
  bool spread = false;  // visits to the same rows lie apart in time; each KV head has items of its own
};

// The planner's cost of a walk in order: simulated time over the time in which no CTA waits, all rows are in
// L2 and items have no beginning and end. 0 if there is too much to simulate. `items` are those of one KV
// head, in the order in which CTAs take them.
double time_walk(const CompiledMap& map, std::span<const BackwardWork> items, const BackwardWalk& walk,
                 const SimulatedBy& by);

}  // namespace longspan::sm90
