#include "attention/oracle/sink_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "attention/element.h"
#include "base/parallel.h"

namespace longspan {
namespace {

// Allowed roundings to f32 of a row's exp(sink - lse) and o dout, and for each root of its terms.
constexpr double kSinkRoundings = 32, kSinkPerRootTerm = 0.25;

struct SinkGradient {
  double value = 0, magnitude = 0;  // the sum over the rows, and that of the terms' magnitudes
};

SinkGradient true_gradient(const Problem& problem, const DeviceTensors& host, int64_t head) {
  std::vector<double> o(static_cast<size_t>(problem.dim_v())), dout(o.size());
  SinkGradient gradient;
  for (int64_t row = 0; row < problem.tokens_q; ++row) {
    load_row(host.o, row, head, o.data());
    load_row(host.dout, row, head, dout.data());
    const double dlse = host.dlse == nullptr ? 0 : host.dlse[head * problem.tokens_q + row];
    double delta = -dlse, terms = std::abs(dlse);
    for (size_t d = 0; d < o.size(); ++d) {
      delta += o[d] * dout[d];
      terms += std::abs(o[d] * dout[d]);
    }
    const double share =
        std::exp(double{problem.sinks[static_cast<size_t>(head)]} - host.lse[head * problem.tokens_q + row]);
    gradient.value -= share * delta;
    gradient.magnitude += share * terms;
  }
  return gradient;
}

}  // namespace

void add_sinks(const Problem& problem, const Samples& samples, ForwardReference& reference) {
  const int64_t dim = problem.dim_v();
  size_t place = 0;
  for (size_t head = 0; head < samples.rows.size(); ++head) {
    const double sink = problem.sinks[head];
    for (size_t i = 0; i < samples.rows[head].size(); ++i, ++place) {
      double& lse = reference.lse[place];
      const double high = std::max(lse, sink), low = std::min(lse, sink);
      const double with_sink = high + std::log1p(std::exp(low - high));
      const double share = std::exp(lse - with_sink);  // 0 for a row without keys
      double* const o = &reference.o.values[place * static_cast<size_t>(dim)];
      for (int64_t d = 0; d < dim; ++d) o[d] *= share;
      for (auto* list :
           {&reference.o.spread, &reference.o.cancelled, &reference.o.scores, &reference.lse_scores})
        (*list)[place] *= share;
      double& largest = reference.largest[place];
      if (std::isinf(lse) || std::abs(sink) > std::abs(largest)) largest = sink;
      lse = with_sink;
    }
  }
}

TensorAccuracy compare_dsinks(const Problem& problem, const DeviceTensors& host) {
  std::vector<SinkGradient> heads(static_cast<size_t>(problem.heads_q));
  parallel_for(problem.heads_q, [&](int64_t head, int) {
    heads[static_cast<size_t>(head)] = true_gradient(problem, host, head);
  });
  TensorAccuracy result;
  result.tensor = "dsinks";
  result.rows = problem.heads_q;
  const auto terms = static_cast<double>(problem.tokens_q * problem.dim_v());
  result.tolerance = unit_roundoff(DType::kF32) * (kSinkRoundings + kSinkPerRootTerm * std::sqrt(terms));
  double squared_errors = 0, squared_values = 0;
  for (size_t head = 0; head < heads.size(); ++head) {
    const auto& [want, magnitude] = heads[head];
    const double difference = std::abs(host.dsinks[head] - want);
    double error = difference == 0 ? 0 : difference / magnitude;
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    squared_errors += difference * difference;
    squared_values += want * want;
    if (error <= result.error) continue;
    result.error = error;
    if (error > result.tolerance) {
      result.failure = fmt::format("dsinks: error {:.3g} exceeds {:.3g} at head {}: {:.6g}, should be {:.6g}",
                                   error, result.tolerance, head, host.dsinks[head], want);
    }
  }
  result.relative = squared_errors == 0 ? 0 : std::sqrt(squared_errors / squared_values);
  if (std::isnan(result.relative)) result.relative = std::numeric_limits<double>::infinity();
  return result;
}

}  // namespace longspan
