#include "bench/measure.h"

#include <algorithm>

namespace longspan::bench {
namespace {

bool narrow_enough(const Measurement& m, const TimingRule& rule) {
  return m.interval_s && (m.interval_s->hi - m.interval_s->lo) / 2 <= rule.half_width * m.median_s;
}

}  // namespace

Measurement measure(const Work& work, Stopwatch& stopwatch, Clock& clock, const TimingRule& rule) {
  const double warmup_end = clock.now_s() + rule.warmup_s;
  do {
    stopwatch.time(work);
  } while (clock.now_s() < warmup_end);

  Measurement m;
  std::vector<double> sorted;
  const double end = clock.now_s() + rule.budget_s;
  int64_t taken = 0;
  do {
    const Sample sample = stopwatch.time(work);
    ++taken;
    if (sample.throttled) {
      m.throttled_samples_s.push_back(sample.time_s);
      continue;
    }
    m.samples_s.push_back(sample.time_s);
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), sample.time_s), sample.time_s);
    m.median_s = median_of_sorted(sorted);
    m.interval_s = median_interval_of_sorted(sorted, rule.confidence);
    m.converged = static_cast<int64_t>(sorted.size()) >= rule.min_samples && narrow_enough(m, rule);
  } while (!m.converged && taken < rule.max_samples && clock.now_s() < end);

  if (m.samples_s.empty()) {  // throttled from the first to the last: the best there is, and not converged
    m.samples_s = m.throttled_samples_s;
    sorted = m.samples_s;
    std::sort(sorted.begin(), sorted.end());
    m.median_s = median_of_sorted(sorted);
    m.interval_s = median_interval_of_sorted(sorted, rule.confidence);
  }
  return m;
}

}  // namespace longspan::bench
