#include "kernels/sm90/backward/planner/turns.h"

#include <algorithm>

#include "base/error.h"

namespace longspan::sm90 {
namespace {

// Calls visit(row tile) in the order of the walk.
template <class Visit>
void walk(const CompiledMap& map, const WorkRow& work, int32_t rows, bool descending, const Visit& visit) {
  for (int32_t i = 0; i < work.runs; ++i) {
    const DeviceRun& run =
        map.runs[work.first_run + static_cast<uint32_t>(descending ? work.runs - 1 - i : i)];
    const int32_t tiles = tiles_of(run);
    for (int32_t t = 0; t < tiles; ++t) visit(run.column / rows + (descending ? tiles - 1 - t : t));
  }
}

int64_t row_tiles_of(const CompiledMap& map, int32_t rows) {
  int64_t count = 0;
  for (const DeviceRun& run : map.runs) count = std::max<int64_t>(count, run.column / rows + tiles_of(run));
  return count;
}

}  // namespace

BackwardTurns order_additions(const CompiledMap& map, int32_t rows, bool descending) {
  BackwardTurns result;
  int64_t tiles = 0;
  for (const DeviceRun& run : map.runs) tiles += tiles_of(run);
  LONGSPAN_CHECK(tiles < int64_t{1} << 32, "{} tiles: at most 2^32 can be ordered", tiles);
  const auto row_tiles = static_cast<size_t>(row_tiles_of(map, rows));
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
      walk(map, work, rows, descending,
           [&](int32_t row_tile) { result.turns.push_back(next[static_cast<size_t>(row_tile)]++); });
    }
  }
  return result;
}

}  // namespace longspan::sm90
