#include "kernels/plan/makespan.h"

#include <algorithm>
#include <cmath>

namespace longspan::plan {

Makespan::Makespan(int64_t workers, double items, double time) {
  const auto count = static_cast<double>(workers);
  const double rounds = std::floor(items / count);
  const auto ahead =
      static_cast<int64_t>(std::ceil(items - rounds * count));  // have an item more than the others
  free_at_.assign(static_cast<size_t>(workers), rounds * time);
  std::fill(free_at_.end() - ahead, free_at_.end(), (rounds + 1) * time);  // sorted, so a heap
  end_ = free_at_.back();
}

void Makespan::take(double time, int64_t count) {
  const size_t size = free_at_.size();
  for (; count > 0; --count) {
    const double done = free_at_.front() + time;
    end_ = std::max(end_, done);
    // The root's new value sinks to its place.
    size_t at = 0;
    for (size_t child = 1; child < size; child = 2 * at + 1) {
      if (child + 1 < size && free_at_[child + 1] < free_at_[child]) ++child;
      if (free_at_[child] >= done) break;
      free_at_[at] = free_at_[child];
      at = child;
    }
    free_at_[at] = done;
  }
}

}  // namespace longspan::plan
