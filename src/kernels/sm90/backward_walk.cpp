#include "kernels/sm90/backward_walk.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

namespace longspan::sm90 {
namespace {

constexpr int64_t kMostSimulated = int64_t{1} << 17;  // tiles, for each walk: less than a ms
constexpr int64_t kMostOfHead = int64_t{1} << 20;     // the same if that is one head's: some ms
constexpr double kHandOver = 0.5;   // tiles' time from one block's addition to the next one's
constexpr double kKept = 4;         // tiles' time for which L2 keeps what all blocks read and add
constexpr double kMissed = 0.5;     // tiles' time that it takes if rows are no longer there
constexpr double kBeginning = 2.5;  // tiles' time that an item's beginning and end take
constexpr double kParts = 0.7;      // in which a part's dk and dv are added to those of the parts before

// Time, in tiles, until the last block is done with `kv_heads` one after the other.
double simulate(const CompiledMap& map, std::span<const BackwardWork> items, int32_t rows, int32_t group,
                int32_t workers, BackwardWalk walk, int64_t kv_heads) {
  int32_t row_tiles = 0;
  for (const DeviceRun& run : map.runs)
    row_tiles = std::max(row_tiles, run.column / rows + std::max(run.code, 1));
  std::vector<double> added, parts;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int32_t i = 0; i < workers; ++i) free_at.push(0);
  double last = 0;
  for (size_t i = 0; i < items.size() * static_cast<size_t>(kv_heads); ++i) {
    if (i % items.size() == 0) {
      added.assign(static_cast<size_t>(row_tiles) * static_cast<size_t>(group), -1);
      parts.assign(static_cast<size_t>(map.row_tiles), 0);
    }
    const BackwardWork& item = items[i % items.size()];
    double now = free_at.top() + kBeginning;
    free_at.pop();
    const auto visit = [&](int32_t row_tile, int32_t head) {
      double& before = added[static_cast<size_t>(row_tile * group + item.first_head + head)];
      if (before >= 0) {
        now = std::max(now, before + kHandOver - 1);
        if (std::abs(now - before) > kKept) now += kMissed;
      }
      before = now += 1;
    };
    const int32_t outer = walk.by_rows ? 1 : item.heads, inner = item.heads > 0 ? item.heads / outer : 0;
    for (int32_t head = 0; head < outer && inner > 0; ++head)
      for (int32_t number = 0; number < item.runs; ++number) {
        const DeviceRun& run =
            map.runs[item.first_run +
                     static_cast<uint32_t>(walk.descending ? item.runs - 1 - number : number)];
        const int32_t tiles = std::max(run.code, 1);
        for (int32_t t = 0; t < tiles; ++t)
          for (int32_t h = 0; h < inner; ++h)
            visit(run.column / rows + (walk.descending ? tiles - 1 - t : t), head + h);
      }
    if (item.heads < group) {
      double& before = parts[static_cast<size_t>(item.key_tile)];
      before = now = std::max(now, before) + kParts;
    }
    free_at.push(now);
    last = std::max(last, now);
  }
  return last;
}

int64_t tiles_of(const CompiledMap& map, std::span<const BackwardWork> items) {
  int64_t tiles = 0;
  for (const BackwardWork& item : items)
    for (int32_t i = 0; i < item.runs; ++i)
      tiles += int64_t{std::max(map.runs[item.first_run + static_cast<uint32_t>(i)].code, 1)} * item.heads;
  return tiles;
}

}  // namespace

TimedWalk choose_walk(const CompiledMap& map, std::span<const BackwardWork> items, int32_t rows,
                      int32_t group, int32_t workers) {
  // The first heads show what the others would.
  std::vector<BackwardWork> some(items.begin(), items.end());
  int32_t heads = group;
  int64_t tiles = tiles_of(map, some);
  for (; tiles > kMostSimulated; tiles = tiles_of(map, some)) {
    if (heads == 1 && tiles > kMostOfHead) return {};
    if (heads == 1) break;
    heads /= 2;
    std::erase_if(some, [&](const BackwardWork& item) { return item.first_head >= heads; });
    for (BackwardWork& item : some) item.heads = std::min(item.heads, heads);
  }
  workers = std::max(static_cast<int32_t>(static_cast<int64_t>(workers) * static_cast<int64_t>(some.size()) /
                                          std::max<int64_t>(static_cast<int64_t>(items.size()), 1)),
                     1);
  const int64_t kv_heads = std::clamp<int64_t>(kMostSimulated / std::max<int64_t>(tiles, 1), 1, 4);
  TimedWalk best;
  for (const bool by_rows : {true, false}) {  // by rows, more are found in L2 than the simulation knows of
    for (const bool descending : {false, true}) {
      const BackwardWalk walk{descending, by_rows};
      const double time = simulate(map, some, rows, group, workers, walk, kv_heads);
      if (best.time == 0 || time < (by_rows ? 0.99 : 0.98) * best.time) best = {walk, time};
    }
  }
  best.time *= static_cast<double>(workers) / static_cast<double>(std::max<int64_t>(tiles, 1) * kv_heads);
  return best;
}

}  // namespace longspan::sm90
