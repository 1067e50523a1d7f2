#include "kernels/sm90/backward/planner/turns.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/sm90/backward/planner/walk.h"

namespace longspan::sm90 {

BackwardTurns order_additions(const CompiledMap& map, int32_t rows, bool descending) {
  BackwardTurns result;
  int64_t tiles = 0;
  for (const DeviceRun& run : map.runs) tiles += tiles_of(run);
  LONGSPAN_CHECK(tiles < int64_t{1} << 32, "{} tiles: at most 2^32 can be ordered", tiles);
  const auto row_tiles = static_cast<size_t>(end_of_row_tiles(map, rows));
  const size_t masks = map.row_tiles > 0 ? map.work.size() / static_cast<size_t>(map.row_tiles) : 0;
  result.first.resize(map.work.size());
  result.turns.reserve(static_cast<size_t>(tiles));
  std::vector<int32_t> next(row_tiles);
  for (size_t mask = 0; mask < masks; ++mask) {
    std::fill(next.begin(), next.end(), 0);
    uint32_t* first = result.first.data() + mask * static_cast<size_t>(map.row_tiles);
    for (int32_t position = 0; position < map.row_tiles; ++position) {
      const WorkRow& work =
          map.work[mask * static_cast<size_t>(map.row_tiles) + static_cast<size_t>(position)];
      first[work.row_tile] = static_cast<uint32_t>(result.turns.size());
      for_each_row_tile(map, work.first_run, work.runs, rows, descending, [&](int32_t row_tile) {
        result.turns.push_back(next[static_cast<size_t>(row_tile)]++);
      });
    }
  }
  return result;
}

}  // namespace longspan::sm90
