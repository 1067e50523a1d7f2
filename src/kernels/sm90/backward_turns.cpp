#include "kernels/sm90/backward_turns.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/error.h"

namespace longspan::sm90 {
namespace {

constexpr int64_t kMostSimulated = int64_t{1} << 22;  // tiles: some 20 ms
constexpr double kHandOver = 0.5;  // tiles' time from one block's addition to the next one's

// Calls visit(row tile) in the order of the walk.
template <class Visit>
void walk(const CompiledMap& map, const WorkRow& work, int32_t rows, bool descending, const Visit& visit) {
  for (int32_t i = 0; i < work.runs; ++i) {
    const DeviceRun& run =
        map.runs[work.first_run + static_cast<uint32_t>(descending ? work.runs - 1 - i : i)];
    const int32_t tiles = std::max(run.code, 1);
    for (int32_t t = 0; t < tiles; ++t) visit(run.column / rows + (descending ? tiles - 1 - t : t));
  }
}

int64_t row_tiles_of(const CompiledMap& map, int32_t rows) {
  int64_t count = 0;
  for (const DeviceRun& run : map.runs)
    count = std::max<int64_t>(count, run.column / rows + std::max(run.code, 1));
  return count;
}

// When the last of the first mask's items ends, in tiles' time.
double makespan(const CompiledMap& map, int32_t rows, bool descending, int32_t workers, int32_t heads) {
  std::vector<double> added(static_cast<size_t>(row_tiles_of(map, rows) * heads), 0);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int32_t i = 0; i < workers; ++i) free_at.push(0);
  double last = 0;
  for (int32_t position = 0; position < map.row_tiles; ++position) {
    double now = free_at.top();
    free_at.pop();
    for (int32_t head = 0; head < heads; ++head)
      walk(map, map.work[static_cast<size_t>(position)], rows, descending, [&](int32_t row_tile) {
        double& turn = added[static_cast<size_t>(int64_t{row_tile} * heads + head)];
        now = std::max(now + 1, turn + kHandOver);
        turn = now;
      });
    free_at.push(now);
    last = std::max(last, now);
  }
  return last;
}

}  // namespace

BackwardTurns order_additions(const CompiledMap& map, int32_t rows, int32_t workers, int32_t heads) {
  BackwardTurns result;
  int64_t tiles = 0;
  for (const DeviceRun& run : map.runs) tiles += std::max(run.code, 1);
  LONGSPAN_CHECK(tiles < int64_t{1} << 32, "{} tiles are more than can be ordered", tiles);
  heads = std::min(heads, 2);  // one change of heads shows what the others would
  if (tiles * heads <= kMostSimulated)
    result.descending =
        makespan(map, rows, true, workers, heads) < makespan(map, rows, false, workers, heads);

  const auto row_tiles = static_cast<size_t>(row_tiles_of(map, rows));
  const size_t masks = map.row_tiles > 0 ? map.work.size() / static_cast<size_t>(map.row_tiles) : 0;
  result.turns.reserve(static_cast<size_t>(tiles));
  std::vector<int32_t> next(row_tiles);
  for (size_t mask = 0; mask < masks; ++mask) {
    std::fill(next.begin(), next.end(), 0);
    for (int32_t position = 0; position < map.row_tiles; ++position) {
      result.first.push_back(static_cast<uint32_t>(result.turns.size()));
      const size_t at = mask * static_cast<size_t>(map.row_tiles) + static_cast<size_t>(position);
      walk(map, map.work[at], rows, result.descending,
           [&](int32_t row_tile) { result.turns.push_back(next[static_cast<size_t>(row_tile)]++); });
    }
  }
  return result;
}

}  // namespace longspan::sm90
