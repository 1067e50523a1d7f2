#include "kernels/sm90/backward/planner/walk.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <queue>
#include <vector>

#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr int64_t kMostSimulated = int64_t{1} << 19;  // steps: a few ms
constexpr int64_t kMostOfHead = int64_t{1} << 20;     // likewise, if a single head has more

// How long rows wait for their next visit, which tells how many visits find them in L2.
class Reuse {
 public:
  void add(double wait) {
    ++visits_;
    // Eight bins for each power of two: the sign, the exponent and three bits of the mantissa.
    if (wait > 0) ++counts_[std::bit_cast<uint32_t>(static_cast<float>(wait)) >> 20];
  }

  // The share of visits whose rows are not in L2, first visits among them. L2 has lost what was not visited
  // for so long that as much was loaded since as it holds, the rows of `capacity` visits.
  double missed(double capacity, double visits_at_a_time) const {
    int64_t found = 0;
    double share = 1;
    for (size_t bin = 0; bin < counts_.size(); ++bin) {
      share = 1 - static_cast<double>(found) / static_cast<double>(std::max<int64_t>(visits_, 1));
      const double wait = std::bit_cast<float>(static_cast<uint32_t>(bin) << 20);
      if (wait * share * visits_at_a_time >= capacity) break;
      found += counts_[bin];
    }
    return share;
  }

 private:
  int64_t visits_ = 0;
  std::vector<int64_t> counts_ = std::vector<int64_t>(0x7f8);  // up to infinity
};

// Heads that all items visit together if they go row by row: one step of the simulation.
int32_t heads_of_step(std::span<const BackwardWork> items, const BackwardWalk& walk) {
  int32_t heads = walk.by_rows ? 0 : 1;
  for (const BackwardWork& item : items) heads = std::gcd(heads, item.heads);
  return std::max(heads, 1);
}

// Time, in tiles, until the last CTA is done.
double simulate(const CompiledMap& map, std::span<const BackwardWork> items, const BackwardWalk& walk,
                const SimulatedBy& by) {
  const int32_t row_tiles = end_of_row_tiles(map, by.rows), step = heads_of_step(items, walk);
  std::vector<double> added(static_cast<size_t>(row_tiles) * static_cast<size_t>(by.group * by.kv_heads));
  std::vector<double> parts(static_cast<size_t>(map.row_tiles) * static_cast<size_t>(by.kv_heads));
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int32_t i = 0; i < by.workers; ++i) free_at.push(0);
  double last = 0, visits = 0;
  Reuse reuse;
  const auto take = [&](const BackwardWork& item, int32_t kv_head) {
    double now = free_at.top() + tuned::kItemEnds;
    free_at.pop();
    double* of_head = added.data() + static_cast<size_t>(kv_head * by.group + item.first_head) *
                                         static_cast<size_t>(row_tiles);
    const auto visit = [&](int32_t row_tile, int32_t head) {
      double& before =
          of_head[static_cast<size_t>(head) * static_cast<size_t>(row_tiles) + static_cast<size_t>(row_tile)];
      now = std::max(now + step, before + tuned::kHandOver);
      reuse.add(before > 0 ? now - before : 0);
      before = now;
      visits += step;
    };
    const int32_t outer = walk.by_rows ? 1 : item.heads, inner = item.heads > 0 ? item.heads / outer : 0;
    for (int32_t head = 0; head < outer && inner > 0; ++head)
      for_each_row_tile(map, item.first_run, item.runs, by.rows, walk.descending, [&](int32_t row_tile) {
        for (int32_t h = 0; h < inner; h += step) visit(row_tile, head + h);
      });
    if (item.heads < by.group) {
      double& before = parts[static_cast<size_t>(kv_head) * static_cast<size_t>(map.row_tiles) +
                             static_cast<size_t>(item.key_tile)];
      before = now = std::max(now, before) + tuned::kOrderedPartSums;
    }
    free_at.push(now);
    last = std::max(last, now);
  };
  // In the order in which CTAs take items.
  for (int32_t section = 0, first = 0, heads = 0; first < by.kv_heads; ++section, first += heads) {
    heads = section < by.last_section ? by.section_heads : by.kv_heads - first;
    for (const BackwardWork& item : items)
      for (int32_t head = first; head < first + heads; ++head) take(item, head);
  }
  const double missed = by.l2_visits > 0 ? reuse.missed(by.l2_visits, visits / last) : 0;
  return last * (1 + tuned::kMissedRows * missed);
}

}  // namespace

int64_t visits_of(const CompiledMap& map, std::span<const BackwardWork> items) {
  int64_t visits = 0;
  for (const BackwardWork& item : items) visits += map.tiles(item.first_run, item.runs) * item.heads;
  return visits;
}

int32_t end_of_row_tiles(const CompiledMap& map, int32_t rows) {
  int32_t end = 0;
  for (const DeviceRun& run : map.runs) end = std::max(end, run.column / rows + tiles_of(run));
  return end;
}

double time_walk(const CompiledMap& map, std::span<const BackwardWork> items, const BackwardWalk& walk,
                 const SimulatedBy& all) {
  // If there is too much to simulate, the first heads stand for all.
  std::vector<BackwardWork> some(items.begin(), items.end());
  SimulatedBy by = all;
  int32_t heads = all.group;
  const auto steps_of_some = [&] { return visits_of(map, some) / heads_of_step(some, walk); };
  int64_t steps = steps_of_some();
  for (; steps > kMostSimulated && !walk.by_rows && heads > 1; steps = steps_of_some()) {
    heads /= 2;
    std::erase_if(some, [&](const BackwardWork& item) { return item.first_head >= heads; });
    for (BackwardWork& item : some) item.heads = std::min(item.heads, heads);
  }
  const int64_t tiles = visits_of(map, some);
  if (steps > kMostOfHead || some.empty() || tiles == 0) return 0;
  by.workers = static_cast<int32_t>(std::max<int64_t>(
      all.workers * static_cast<int64_t>(some.size()) / static_cast<int64_t>(items.size()), 1));
  by.kv_heads = static_cast<int32_t>(
      std::clamp<int64_t>(kMostSimulated / std::max<int64_t>(steps, 1), 1, all.kv_heads));
  const int32_t last_heads = all.kv_heads - all.last_section * all.section_heads;
  by.last_section = std::max(by.kv_heads - last_heads, 0) / by.section_heads;
  return simulate(map, some, walk, by) * by.workers / static_cast<double>(tiles * by.kv_heads);
}

}  // namespace longspan::sm90
