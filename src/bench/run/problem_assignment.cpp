// Groups cases by problem and assigns the groups to devices.
#include "bench/run/problem_assignment.h"

#include <utility>

#include "base/error.h"

namespace longspan::bench {

std::string problem_of(const Case& c) {
  nlohmann::json problem = to_json(c);
  problem.erase("kernel");
  problem.erase("direction");
  problem.erase("deterministic");
  return problem.dump();
}

std::vector<Portion> portions_of(const std::vector<Case>& cases) {
  std::vector<Portion> portions;
  std::map<std::string, size_t> places;
  for (const Case& c : cases) {
    std::string problem = problem_of(c);
    const auto [place, is_new] = places.try_emplace(problem, portions.size());
    if (is_new) portions.push_back({std::move(problem), {}});
    portions[place->second].cases.push_back(c);
  }
  return portions;
}

ProblemAssignment::ProblemAssignment(std::vector<Portion> portions,
                                     const std::map<std::string, size_t>& homes, size_t devices)
    : own_(devices) {
  for (Portion& portion : portions) {
    const auto home = homes.find(portion.problem);
    LONGSPAN_CHECK(home == homes.end() || home->second < devices, "device {} of {}", home->second, devices);
    (home == homes.end() ? unassigned_ : own_[home->second]).push_back(std::move(portion));
  }
}

std::optional<Portion> ProblemAssignment::next(size_t device) {
  const std::lock_guard lock(mutex_);
  std::deque<Portion>& queue = own_[device].empty() ? unassigned_ : own_[device];
  if (queue.empty()) return std::nullopt;
  Portion portion = std::move(queue.front());
  queue.pop_front();
  return portion;
}

}  // namespace longspan::bench
