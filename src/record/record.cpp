#include "record/record.h"

#include <cmath>

#include "base/error.h"

namespace longspan::record {

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

}  // namespace longspan::record
