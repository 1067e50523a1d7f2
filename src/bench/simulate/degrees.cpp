#include "bench/simulate/degrees.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"

namespace longspan::bench {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();

std::vector<GroupTime> times_of(const std::vector<std::vector<GroupTime>>& choices,
                                const std::vector<size_t>& chosen) {
  std::vector<GroupTime> times;
  for (size_t i = 0; i < choices.size(); ++i) times.push_back(choices[i][chosen[i]]);
  return times;
}

// The choice with the fewest ranks, of equal ones the fastest, among those that `allowed` takes.
template <class Allowed>
size_t fewest_ranks(const std::vector<GroupTime>& choices, Allowed&& allowed) {
  size_t best = kNone;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!allowed(choices[i])) continue;
    const auto less = [](const GroupTime& a, const GroupTime& b) {
      return a.degree != b.degree ? a.degree < b.degree : a.time_s < b.time_s;
    };
    if (best == kNone || less(choices[i], choices[best])) best = i;
  }
  return best;
}

}  // namespace

double step_time_s(int ranks, int stages, std::vector<GroupTime> micro_batches) {
  std::stable_sort(micro_batches.begin(), micro_batches.end(), [](const GroupTime& a, const GroupTime& b) {
    return a.degree != b.degree ? a.degree > b.degree : a.time_s > b.time_s;
  });
  std::vector<double> free_s(static_cast<size_t>(ranks));
  double longest_s = 0;
  for (const GroupTime& batch : micro_batches) {
    LONGSPAN_CHECK(batch.degree >= 1 && ranks % batch.degree == 0, "groups of {} among {} ranks",
                   batch.degree, ranks);
    const auto free_at = [&](int begin) {
      return *std::max_element(free_s.begin() + begin, free_s.begin() + begin + batch.degree);
    };
    int best = 0;
    for (int begin = batch.degree; begin < ranks; begin += batch.degree)
      if (free_at(begin) < free_at(best)) best = begin;
    const double end_s = free_at(best) + batch.time_s;
    std::fill_n(free_s.begin() + best, batch.degree, end_s);
    longest_s = std::max(longest_s, batch.time_s);
  }
  return *std::max_element(free_s.begin(), free_s.end()) + (stages - 1) * longest_s;
}

std::vector<size_t> choose_groups(int ranks, int stages, const std::vector<std::vector<GroupTime>>& choices) {
  std::set<double> deadlines;
  std::set<int> degrees;
  for (const std::vector<GroupTime>& of_batch : choices) {
    LONGSPAN_CHECK(!of_batch.empty(), "a micro-batch has no choice");
    for (const GroupTime& choice : of_batch) {
      deadlines.insert(choice.time_s);
      degrees.insert(choice.degree);
    }
  }
  std::vector<size_t> best;
  double best_s = std::numeric_limits<double>::infinity();
  const auto try_all = [&](auto&& allowed) {
    std::vector<size_t> chosen;
    for (const std::vector<GroupTime>& of_batch : choices) {
      chosen.push_back(fewest_ranks(of_batch, allowed));
      if (chosen.back() == kNone) return;
    }
    const double time_s = step_time_s(ranks, stages, times_of(choices, chosen));
    if (time_s >= best_s) return;
    best_s = time_s;
    best = std::move(chosen);
  };
  for (const int degree : degrees) try_all([&](const GroupTime& g) { return g.degree == degree; });
  for (const double deadline_s : deadlines)
    try_all([&](const GroupTime& g) { return g.time_s <= deadline_s; });
  return best;
}

}  // namespace longspan::bench
