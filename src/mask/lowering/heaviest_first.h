// The order of row tiles, heaviest first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace longspan {

// Sorts by descending cost, stably. Costs are compared by their leading bits, so that fewer than `most_costs`
// are told apart.
template <class T, class CostOf>
void sort_heaviest_first(std::span<T> items, const CostOf& cost_of,
                         uint32_t most_costs = std::numeric_limits<uint32_t>::max()) {
  if (std::ranges::is_sorted(items, std::greater<>(), cost_of)) return;
  thread_local std::vector<T> from;
  from.assign(items.begin(), items.end());
  const uint32_t most = cost_of(*std::ranges::max_element(from, std::less<>(), cost_of));
  int shift = 0;
  while (most >> shift >= most_costs) ++shift;
  const auto place_of = [&](const T& item) -> size_t { return (most >> shift) - (cost_of(item) >> shift); };
  // A counting sort, since costs are small. Neighbours often cost the same: the count in use stays in a
  // register.
  std::vector<uint32_t> places((most >> shift) + 2);
  const auto visit = [&](uint32_t* counts, const auto& use) {
    size_t place = place_of(from.front());
    uint32_t count = counts[place];
    for (const T& item : from) {
      if (const size_t next = place_of(item); next != place) {
        counts[place] = count;
        place = next;
        count = counts[place];
      }
      use(item, count++);
    }
    counts[place] = count;
  };
  visit(places.data() + 1, [](const T&, uint32_t) {});
  for (size_t i = 1; i < places.size(); ++i) places[i] += places[i - 1];
  visit(places.data(), [&](const T& item, uint32_t at) { items[at] = item; });
}

}  // namespace longspan
