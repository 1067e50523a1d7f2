// The sampling loop of the timing rule.
#include "bench/measure/measure.h"

#include <algorithm>

namespace longspan::bench {
namespace {

bool narrow_enough(const Measurement& m, const TimingRule& rule) {
  return m.interval_s && (m.interval_s->hi - m.interval_s->lo) / 2 <= rule.half_width * m.median_s;
}

// The length of the next row of samples, limited to what fits before `end_s`.
int64_t row_length(const Stopwatch& stopwatch, double time_s, double now_s, double end_s) {
  const double left = std::max(0.0, end_s - now_s) / std::max(time_s, 1e-9);
  const int64_t row = std::max<int64_t>(1, stopwatch.row_length(time_s));
  return left < static_cast<double>(row) ? std::max<int64_t>(1, static_cast<int64_t>(left)) : row;
}

}  // namespace

Measurement measure(const Work& work, Stopwatch& stopwatch, Clock& clock, const TimingRule& rule) {
  const double warmup_end = clock.now_s() + rule.warmup_s;
  double time_s = stopwatch.time(work).time_s;
  while (clock.now_s() < warmup_end) {
    time_s = stopwatch.row(work, row_length(stopwatch, time_s, clock.now_s(), warmup_end)).back().time_s;
  }

  Measurement m;
  std::vector<double> sorted;
  const double begin = clock.now_s(), end = begin + rule.budget_s;
  const double may_end = begin + std::min(rule.min_time_s, rule.budget_s);
  int64_t taken = 0;
  do {
    const int64_t count =
        std::min(row_length(stopwatch, time_s, clock.now_s(), end), rule.max_samples - taken);
    for (const Sample& sample : stopwatch.row(work, count)) {
      ++taken;
      time_s = sample.time_s;
      if (sample.throttled) {
        m.throttled_samples_s.push_back(sample.time_s);
        continue;
      }
      m.samples_s.push_back(sample.time_s);
      sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), sample.time_s), sample.time_s);
    }
    if (sorted.empty()) continue;
    m.median_s = median_of_sorted(sorted);
    m.interval_s = median_interval_of_sorted(sorted, rule.confidence);
    m.converged = static_cast<int64_t>(sorted.size()) >= rule.min_samples && narrow_enough(m, rule);
  } while (taken < rule.max_samples && clock.now_s() < (m.converged ? may_end : end));

  if (m.samples_s.empty()) {  // all throttled: report them, as not converged
    m.samples_s = m.throttled_samples_s;
    sorted = m.samples_s;
    std::sort(sorted.begin(), sorted.end());
    m.median_s = median_of_sorted(sorted);
    m.interval_s = median_interval_of_sorted(sorted, rule.confidence);
  }
  return m;
}

}  // namespace longspan::bench
