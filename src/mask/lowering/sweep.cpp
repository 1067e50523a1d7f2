#include "mask/lowering/sweep.h"

namespace longspan {

std::vector<SweepRange> split_into_ranges(const BandList& bands, const Tiling& tiling, int64_t count) {
  const int64_t row_tiles = tiling.row_tiles();
  std::vector<SweepRange> ranges;
  for (int64_t i = 0; i < count; ++i)
    ranges.push_back({row_tiles * i / count, row_tiles * (i + 1) / count, 0, {}});
  if (count == 1) return ranges;
  const auto begin_of = [&](size_t range) { return tiling.rows_of(ranges[range].first_tile).begin; };
  const std::vector<BandList::Group>& groups = bands.groups();
  size_t range = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (; range + 1 < ranges.size() && groups[g].q_begin >= begin_of(range + 1); ++range)
      ranges[range + 1].next = g;
    for (size_t later = range + 1; later < ranges.size() && begin_of(later) < groups[g].q_end; ++later)
      ranges[later].active.push_back(g);
  }
  for (++range; range < ranges.size(); ++range) ranges[range].next = groups.size();
  return ranges;
}

}  // namespace longspan
