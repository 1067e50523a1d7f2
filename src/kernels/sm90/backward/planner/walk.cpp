#include "kernels/sm90/backward/planner/walk.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <vector>

#include "kernels/plan/reuse.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr int64_t kMostSimulated = int64_t{1} << 19;  // steps: a few ms
constexpr int64_t kMostOfHead = int64_t{1} << 20;     // likewise, if a single head has more

// Heads that all items visit together if they go row by row: one step of the simulation.
int32_t heads_of_step(std::span<const BackwardWork> items, const BackwardWalk& walk) {
  int32_t heads = walk.by_rows ? 0 : 1;
  for (const BackwardWork& item : items) heads = std::gcd(heads, item.heads);
  return std::max(heads, 1);
}

// Time, in tiles, until the last CTA is done.
double simulate(const CompiledMap& map, std::span<const BackwardWork> items, const BackwardWalk& walk,
                const SimulatedBy& by) {
  const int32_t step = heads_of_step(items, walk);
  const size_t row_tiles = map.end_of_column_tiles(), key_tiles = map.row_tiles;
  const BackwardSections& sections = by.sections;
  std::vector<double> added(row_tiles * sections.group * sections.heads_kv),
      parts(key_tiles * sections.heads_kv);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int32_t i = 0; i < by.workers; ++i) free_at.push(0);
  double last = 0, visits = 0;
  plan::Reuse reuse;
  const auto take = [&](const BackwardWork& item, int32_t kv_head) {
    double now = free_at.top() + tuned::kItemEnds;
    free_at.pop();
    const auto visit = [&](int32_t row_tile, int32_t head) {
      double& before = added[(kv_head * sections.group + item.first_head + head) * row_tiles + row_tile];
      now = std::max(now + step, before + tuned::kHandOver);
      reuse.add(before > 0 ? now - before : 0);
      before = now;
      visits += step;
    };
    const int32_t outer = walk.by_rows ? 1 : item.heads, inner = item.heads > 0 ? item.heads / outer : 0;
    for (int32_t head = 0; head < outer && inner > 0; ++head)
      for_each_row_tile(map, item, walk.descending, [&](int32_t row_tile) {
        for (int32_t h = 0; h < inner; h += step) visit(row_tile, head + h);
      });
    if (item.heads < sections.group) {
      double& before = parts[kv_head * key_tiles + item.key_tile];
      before = now = std::max(now, before) + tuned::kOrderedPartSums;
    }
    free_at.push(now);
    last = std::max(last, now);
  };
  // In the order in which CTAs take items.
  for (int32_t section = 0; section <= sections.last_section; ++section)
    for (const BackwardWork& item : items)
      for (int32_t head = 0; head < sections.heads_of(section); ++head)
        take(item, sections.first_head(section) + head);
  const double missed = by.l2_visits > 0 ? reuse.missed(by.l2_visits, visits / last) : 0;
  return last * (1 + tuned::kMissedRows * missed);
}

}  // namespace

int64_t visits_of(const CompiledMap& map, std::span<const BackwardWork> items) {
  int64_t visits = 0;
  for (const BackwardWork& item : items) visits += map.tiles(item.first_run, item.runs) * item.heads;
  return visits;
}

double time_walk(const CompiledMap& map, std::span<const BackwardWork> items, const BackwardWalk& walk,
                 const SimulatedBy& all) {
  const int64_t tiles = visits_of(map, items), steps = tiles / heads_of_step(items, walk);
  if (steps > kMostOfHead || tiles == 0) return 0;
  // If there is too much to simulate, the first KV heads stand for all.
  SimulatedBy by = all;
  const int32_t last_heads = all.sections.heads_of(all.sections.last_section);
  int32_t& heads_kv = by.sections.heads_kv;
  heads_kv = static_cast<int32_t>(std::clamp<int64_t>(kMostSimulated / steps, 1, heads_kv));
  by.sections.last_section = std::max(heads_kv - last_heads, 0) / by.sections.section_heads;
  return simulate(map, items, walk, by) * by.workers / static_cast<double>(tiles * heads_kv);
}

}  // namespace longspan::sm90
