#include "record/fields.h"

#include <algorithm>

#include <fmt/format.h>

namespace longspan::record {
namespace {

constexpr int64_t kMostRanks = 4096;
constexpr int64_t kLargestPicture = 1024;  // cells along a side

// Finds lists by rank whose size differs from the number of ranks.
class RankCheck {
 public:
  explicit RankCheck(int64_t ranks) : ranks_(static_cast<size_t>(ranks)) {}

  template <class T>
  void field(const char* key, const T& value, const char* /*meaning*/, unsigned flags = 0) {
    if constexpr (requires { value.size(); }) {
      if ((flags & kByRank) != 0 && !value.empty() && value.size() != ranks_ && wrong.empty())
        wrong = fmt::format("'{}' must be a list of {} numbers", key, ranks_);
    }
  }

  std::string wrong;

 private:
  size_t ranks_;
};

std::string check_plan(const PassPlan& plan, int64_t ranks) {
  RankCheck lists(ranks);
  visit(lists, plan);
  if (!plan.owned.empty() && plan.owned.size() != static_cast<size_t>(ranks))
    return "'owned' must have one list of ranges per rank";
  for (const PlanRound& round : plan.by_round) {
    visit(lists, round);
    for (const PlanMove& move : round.moves.value_or(std::vector<PlanMove>())) {
      if (move.from >= ranks || move.to >= ranks)
        return fmt::format("'moves' names rank {} of {}", std::max(move.from, move.to), ranks);
    }
  }
  return lists.wrong;
}

}  // namespace

std::string check(const Picture& picture) {
  if (picture.size < 1 || picture.size > kLargestPicture)
    return fmt::format("'size' is {}; it must be 1 to {}", picture.size, kLargestPicture);
  if (picture.cells.size() != static_cast<size_t>(picture.size * picture.size))
    return fmt::format("'data' must hold size * size = {} bytes in base64", picture.size * picture.size);
  return "";
}

std::string check(const ParallelRecord& parallel) {
  for (const auto& [key, value] : {std::pair("ranks", parallel.ranks), {"nodes", parallel.nodes}}) {
    if (value < 1 || value > kMostRanks)
      return fmt::format("'{}' is {}; it must be a whole number from 1 to {}", key, value, kMostRanks);
  }
  RankCheck lists(parallel.ranks);
  visit(lists, parallel);
  return lists.wrong.empty() ? check_plan(parallel.plan, parallel.ranks) : lists.wrong;
}

std::string check(const CaseRecord& c) {
  return c.status == Status::kOk && !c.time_s ? "status is ok but 'time_s' is missing" : "";
}

std::string check(const SimulatedTimeline& t) {
  const size_t rows = t.rank.size();
  const bool equal =
      t.what.size() == rows && t.begin_s.size() == rows && t.end_s.size() == rows && t.peer.size() == rows;
  return equal ? "" : "the columns of 'timeline' differ in length";
}

std::string check(const SimulatedMemory& m) {
  const bool equal = m.begin_s.size() == m.rank.size() && m.bytes.size() == m.rank.size();
  return equal ? "" : "the columns of 'memory' differ in length";
}

}  // namespace longspan::record
