#include "base/list_schedule.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace longspan {

int64_t list_schedule_end(std::span<const int64_t> costs, int64_t copies, int64_t workers) {
  if (costs.empty()) return 0;
  // How many workers are free at a time, modulo the size: none is busy for longer than the largest cost.
  std::vector<int64_t> free(std::bit_ceil(static_cast<uint64_t>(*std::ranges::max_element(costs)) + 1));
  const auto at = [&](int64_t time) -> int64_t& { return free[time & (std::ssize(free) - 1)]; };
  at(0) = workers;
  int64_t now = 0, last = 0;
  for (const int64_t cost : costs)
    for (int64_t left = copies; left > 0;) {
      while (at(now) == 0) ++now;
      const int64_t taken = std::min(left, at(now));
      at(now) -= taken, left -= taken;
      at(now + cost) += taken;
      last = std::max(last, now + cost);
    }
  return last;
}

}  // namespace longspan
