#include "mask/lowering/row_tile_costs.h"

#include <algorithm>

#include "base/ceil_div.h"

namespace longspan {
namespace {

void add_costs(const Mask& mask, int64_t tokens, RowTileCosts& costs) {
  const BandList& bands = mask.bands();
  const auto columns = static_cast<double>(std::max<int64_t>(mask.columns(), 1));
  int64_t tile = 0;   // the current even row tile
  double unseen = 1;  // share of the keys that none of its rows so far sees
  const auto next_tile = [&](int64_t to) {
    costs.even += (1 - unseen) * columns;
    unseen = 1;
    tile = to;
  };
  for (size_t g = 0; g < bands.groups().size(); ++g) {
    const BandList::Group& group = bands.groups()[g];
    int64_t keys = 0;
    for (size_t i = bands.group_begin(g); i < bands.group_end(g); ++i) keys += bands.band(g, i).k.size();
    const double hidden = 1 - static_cast<double>(keys) / columns;
    const int64_t rows = group.q_end - group.q_begin;
    const int64_t row_tiles = ceil_div(rows, tokens);
    costs.of_blocks += static_cast<double>(row_tiles * keys);
    const int64_t first = group.q_begin / tokens, last = (group.q_end - 1) / tokens;
    if (first != tile) next_tile(first);
    unseen *= hidden;
    if (last == first) continue;
    next_tile(first + 1);
    costs.even += static_cast<double>((last - first - 1) * keys);
    tile = last;
    unseen = hidden;
  }
  next_tile(0);
}

}  // namespace

RowTileCosts row_tile_costs(const HeadMasks& masks, int64_t tokens) {
  RowTileCosts costs;
  for (const Mask& mask : masks) add_costs(mask, tokens, costs);
  return costs;
}

}  // namespace longspan
