#include "sm90_l2.h"

#include <algorithm>
#include <functional>
#include <list>
#include <queue>
#include <random>
#include <unordered_map>
#include <vector>

#include "kernels/sm90/tuning/h200.h"

namespace longspan {
namespace {

using namespace sm90;

class Cache {
 public:
  explicit Cache(int64_t bytes) : free_(bytes) {}

  // Whether it is there. It is afterwards.
  bool touch(int64_t key, int64_t bytes) {
    if (const auto known = place_.find(key); known != place_.end()) {
      order_.splice(order_.begin(), order_, known->second);
      return true;
    }
    order_.emplace_front(key, bytes);
    place_[key] = order_.begin();
    for (free_ -= bytes; free_ < 0; order_.pop_back()) {
      free_ += order_.back().second;
      place_.erase(order_.back().first);
    }
    return false;
  }

 private:
  int64_t free_;
  std::list<std::pair<int64_t, int64_t>> order_;  // key and bytes, the latest first
  std::unordered_map<int64_t, decltype(order_)::iterator> place_;
};

struct Item {
  const BackwardWork* work;
  int32_t kv_head;
};

// In the order in which CTAs take them, as BackwardItem of the kernel numbers them.
std::vector<Item> items_of(const Problem& problem, const BackwardArrangement& plan) {
  std::vector<Item> items;
  const auto kv_heads = static_cast<int32_t>(problem.heads_kv);
  for (int32_t section = 0, first = 0; first < kv_heads; ++section) {
    const bool last = section == plan.last_section;
    const int32_t heads = last ? kv_heads - first : plan.section_heads;
    for (int32_t i = 0; i < (last ? plan.items.per_last : plan.items.per_list); ++i)
      for (int32_t head = first; head < first + heads; ++head)
        items.push_back({&plan.items.work[static_cast<size_t>(i + (last ? plan.last_list : 0))], head});
    first += heads;
  }
  return items;
}

// The row tiles of query heads that an item visits.
std::vector<int64_t> visits_of(const Item& item, const Problem& problem, const BackwardArrangement& plan) {
  std::vector<int64_t> visits;
  const BackwardWork& work = *item.work;
  const BackwardWalk& walk = plan.split.walk;
  const int32_t outer = walk.by_rows ? 1 : work.heads, inner = work.heads / std::max(outer, 1);
  for (int32_t head = 0; head < outer; ++head)
    for_each_row_tile(plan.grid.map, work, walk.descending, [&](int32_t row_tile) {
      for (int32_t h = head; h < head + inner; ++h)
        visits.push_back((item.kv_head * problem.group_size() + work.first_head + h) * plan.row_tiles +
                         row_tile);
    });
  return visits;
}

}  // namespace

L2Run run_on_l2(const Problem& problem, const BackwardShape& shape, const BackwardArrangement& plan,
                int64_t units, int64_t l2_bytes) {
  struct Cta {
    double now = 0;
    std::vector<int64_t> left;  // visits of its item, the next one last
  };
  const std::vector<Item> items = items_of(problem, plan);
  std::vector<Cta> ctas(static_cast<size_t>(units));
  std::minstd_rand random(1);
  std::uniform_real_distribution<double> tile_time(0.98, 1.02);
  using At = std::pair<double, size_t>;
  std::priority_queue<At, std::vector<At>, std::greater<>> next;
  size_t taken = 0;
  const auto take = [&](size_t cta) {
    if (taken == items.size()) return;
    ctas[cta].left = visits_of(items[taken++], problem, plan);
    std::ranges::reverse(ctas[cta].left);
    ctas[cta].now += h200::backward::kItemEnds;
    next.emplace(ctas[cta].now, cta);
  };
  for (size_t cta = 0; cta < ctas.size(); ++cta) take(cta);

  const int64_t rows_bytes = 2 * shape.rows * problem.head_dim * 2,
                sums_bytes = shape.rows * problem.head_dim * 4;
  Cache cache(l2_bytes);
  L2Run run;
  int64_t tiles = 0;
  double end = 0;
  while (!next.empty()) {
    const size_t number = next.top().second;
    next.pop();
    Cta& cta = ctas[number];
    if (!cta.left.empty()) {
      const int64_t visit = cta.left.back();
      cta.left.pop_back();
      if (!cache.touch(2 * visit, rows_bytes)) run.missed += static_cast<double>(rows_bytes);
      if (!cache.touch(2 * visit + 1, sums_bytes)) run.missed += 2 * static_cast<double>(sums_bytes);
      ++tiles;
      cta.now += tile_time(random);
    }
    end = std::max(end, cta.now);
    cta.left.empty() ? take(number) : next.emplace(cta.now, number);
  }
  run.time = end * static_cast<double>(units) / static_cast<double>(tiles);
  run.missed /= static_cast<double>(tiles);
  run.moved = static_cast<double>(rows_bytes + 2 * sums_bytes);
  return run;
}

}  // namespace longspan
