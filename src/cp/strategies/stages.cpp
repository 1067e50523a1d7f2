#include "cp/strategies/stages.h"

#include <algorithm>
#include <cmath>

namespace longspan {
namespace {

// The fixed cost of a stage: launches, and idle multiprocessors at its end. A rough figure for an H200.
constexpr double kStage_s = 3e-5;
// The slowdown of transfers that overlap with a kernel.
constexpr double kBesideAKernel = 2;
constexpr size_t kMostStages = 8;

// Groups that grow by a constant factor from the first one.
std::vector<Range> growing(int64_t heads, int64_t first, double factor) {
  std::vector<Range> stages;
  double size = static_cast<double>(first);
  for (int64_t begin = 0; begin < heads;) {
    int64_t end = std::min(heads, begin + std::max<int64_t>(1, std::llround(size)));
    if (stages.size() + 1 == kMostStages) end = heads;
    stages.push_back({begin, end});
    begin = end;
    size *= factor;
  }
  return stages;
}

// Splits stages at the ends of the ranges in `within`.
std::vector<Range> cut(const std::vector<Range>& stages, const std::vector<Range>& within) {
  if (within.empty()) return stages;
  std::vector<Range> pieces;
  for (const Range& stage : stages) {
    for (const Range& outer : within) {
      const Range piece{std::max(stage.begin, outer.begin), std::min(stage.end, outer.end)};
      if (!piece.empty()) pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace

double end_of(const std::vector<Range>& stages, int64_t heads, const PassEstimate& pass) {
  double begun = 0, arrived = 0, attended = 0, left = 0;
  for (const Range& stage : stages) {
    const double share = static_cast<double>(stage.size()) / static_cast<double>(heads);
    const bool beside = &stage != &stages.front();  // its data is requested when the previous stage begins
    arrived = std::max(arrived, begun) + share * pass.arrive_s * (beside ? kBesideAKernel : 1);
    begun = std::max(attended, arrived);
    attended = begun + share * pass.attend_s + kStage_s;
    left = std::max(left, attended) + share * pass.leave_s;
  }
  return std::max(attended, left);
}

std::vector<Range> stages_of(int64_t heads, const PassEstimate& pass, const std::vector<Range>& within) {
  std::vector<Range> best;
  double least = 0;
  const auto consider = [&](std::vector<Range> stages) {
    stages = cut(stages, within);
    const double end_s = end_of(stages, heads, pass);
    if (best.empty() || end_s < least) best = std::move(stages), least = end_s;
  };
  for (int64_t first = heads; first >= 1; first = first > 8 ? first / 2 : first - 1) {
    for (const double factor : {1.0, 1.5, 2.0, 3.0, 4.0, 7.0}) {
      std::vector<Range> stages = growing(heads, first, factor);
      consider(stages);
      std::reverse(stages.begin(), stages.end());
      consider(stages);
    }
  }
  return best;
}

}  // namespace longspan
