// Walks back from the end of the slowest rank: through its own steps, and through the transfers it waited
// for to the rank that was last to be ready for them.
#include <algorithm>
#include <cmath>

#include "cp/simulate/simulate.h"

namespace longspan::simulate {

std::vector<PathStretch> critical_path(const Program& program, const Timeline& timeline) {
  const auto slowest = std::max_element(timeline.ranks.begin(), timeline.ranks.end(),
                                        [](const auto& a, const auto& b) { return a.end_s < b.end_s; });
  std::vector<PathStretch> path;
  auto rank = static_cast<int32_t>(slowest - timeline.ranks.begin());
  double now_s = slowest->end_s;
  while (now_s > 0) {
    const std::vector<Segment>& segments = timeline.segments[static_cast<size_t>(rank)];
    // The last stretch of the rank that begins before now.
    auto at =
        std::lower_bound(segments.begin(), segments.end(), now_s,
                         [](const Segment& segment, double time_s) { return segment.begin_s < time_s; });
    if (at == segments.begin()) break;
    const Segment& segment = *--at;
    if (segment.flow < 0) {
      path.push_back({segment.kind, rank, -1, segment.begin_s, std::min(now_s, segment.end_s)});
      now_s = segment.begin_s;
      continue;
    }
    const Flow& flow = program.flows[static_cast<size_t>(segment.flow)];
    const FlowTimes& times = timeline.flows[static_cast<size_t>(segment.flow)];
    const int32_t last = times.source_was_last ? flow.src : flow.dst;
    const double ready_s = std::min(times.ready_s, segment.end_s);
    path.push_back({StepKind::kArrive, flow.dst, flow.src, ready_s, now_s});
    rank = last;
    now_s = std::min(ready_s, std::nextafter(now_s, 0.0));
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace longspan::simulate
