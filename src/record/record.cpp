#include "record/record.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "record/json_reader.h"
#include "record/json_writer.h"

namespace longspan::record {
namespace {

constexpr int64_t kMostRanks = 4096;
constexpr int64_t kLargestPicture = 1024;  // of a side: more is no small picture

template <class T>
Json line_of(const T& value, const char* type) {
  Json line = {{"type", type}, {"schema", kSchema}};
  JsonWriter writer;
  writer.object = std::move(line);
  visit(writer, value);
  return std::move(writer.object);
}

// Finds the lists by rank that have not as many entries as there are ranks.
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
    return "'owned' must have a list of ranges for each rank";
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

std::string_view name_of(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kSkipped:
      return "skipped";
    case Status::kFailed:
      return "failed";
  }
  LONGSPAN_CHECK(false, "status {} has no name", static_cast<int>(status));
  return "";
}

std::vector<ErrorFigure> Accuracy::errors() const {
  std::vector<ErrorFigure> figures;
  for (const auto& [tensor, error] : max_error) {
    if (std::isnan(error)) continue;
    ErrorFigure figure{tensor, error, std::nullopt};
    if (const auto found = tolerance.find(tensor); found != tolerance.end() && !std::isnan(found->second))
      figure.tolerance = found->second;
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::optional<ErrorFigure> Accuracy::worst() const {
  std::optional<ErrorFigure> worst;
  double worst_ratio = -1;
  for (const ErrorFigure& figure : errors()) {
    if (!figure.tolerance || *figure.tolerance <= 0) continue;
    const double ratio = figure.error / *figure.tolerance;
    if (ratio <= worst_ratio) continue;
    worst_ratio = ratio;
    worst = figure;
  }
  return worst;
}

std::optional<double> ParallelRecord::share(const std::vector<double>& part) const {
  if (rank_time_s.empty() || part.empty()) return std::nullopt;
  double sum = 0, all = 0;
  for (size_t rank = 0; rank < rank_time_s.size(); ++rank) {
    sum += part[rank];
    all += rank_time_s[rank];
  }
  if (all <= 0) return std::nullopt;
  return sum / all;
}

Outcome Outcome::skipped(std::string reason) {
  Outcome outcome;
  outcome.status = Status::kSkipped;
  outcome.reason = std::move(reason);
  return outcome;
}

Outcome Outcome::failed(std::string reason) {
  Outcome outcome;
  outcome.status = Status::kFailed;
  outcome.reason = std::move(reason);
  return outcome;
}

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

Json to_json(const RunRecord& run) {
  return line_of(run, "run");
}

Json to_json(const CaseRecord& c) {
  return line_of(c, "case");
}

Json to_json(const PassPlan& plan) {
  return encode(plan);
}

Open<Machine> open_object(const Machine& machine) {
  return {encode(machine)};
}

Open<DeviceInfo> open_object(const DeviceInfo& device) {
  return {encode(device)};
}

Open<Software> open_object(const Software& software) {
  return {encode(software)};
}

Open<TimingRule> open_object(const TimingRule& rule) {
  return {encode(rule)};
}

Open<DeviceState> open_object(const DeviceState& state) {
  return {encode(state)};
}

Workload workload_from(Json json) {
  return from_json<Workload>(json);
}

}  // namespace longspan::record
