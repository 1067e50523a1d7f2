#include "kernels/sm90/backward/planner/turns.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "kernels/sm90/backward/planner/walk.h"

namespace longspan::sm90 {

BackwardTurns order_additions(const CompiledMap& map, bool descending) {
  const int64_t tiles = map.tiles(0, map.runs.size());
  LONGSPAN_CHECK(tiles < int64_t{1} << 32, "{} tiles: at most 2^32 can be ordered", tiles);
  BackwardTurns result;
  result.first.resize(map.work.size());
  result.turns.reserve(tiles);
  std::vector<int32_t> next(map.end_of_column_tiles());
  for (size_t of_mask = 0; of_mask < map.work.size(); of_mask += map.row_tiles) {
    std::ranges::fill(next, 0);
    for (const WorkRow& row : std::span(map.work).subspan(of_mask, map.row_tiles)) {
      result.first[of_mask + row.row_tile] = static_cast<uint32_t>(result.turns.size());
      for_each_row_tile(map, row, descending,
                        [&](int32_t row_tile) { result.turns.push_back(next[row_tile]++); });
    }
  }
  return result;
}

}  // namespace longspan::sm90
