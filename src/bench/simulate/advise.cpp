#include "bench/simulate/advise.h"

#include <algorithm>

#include "base/error.h"
#include "bench/simulate/predict.h"

namespace longspan::bench {
namespace {

constexpr double kSlower = 0.75, kFaster = 1.25;

Machine with_links(Machine machine, double factor) {
  for (auto& [transport, links] : machine.links) {
    for (double* rate : {&links.port_bytes_per_s, &links.beside_bytes_per_s, &links.flow_bytes_per_s,
                         &links.interface_bytes_per_s}) {
      *rate *= factor;
    }
  }
  return machine;
}

// The options of a strategy that are worth trying: every Ulysses degree, and over nodes both placements.
std::vector<StrategyOptions> options_of(const Strategy& strategy, const Case& problem) {
  const int ranks = problem.parallelism.ranks;
  if (find_option(strategy.options, "ulysses") == nullptr) return {{}};
  std::vector<StrategyOptions> list;
  for (int u = 2; u < ranks && u <= problem.heads_q; ++u) {  // 1 and all ranks are other strategies
    if (ranks % u != 0) continue;
    for (const char* placement : {"head-first", "context-first"}) {
      list.push_back(StrategyOptions().set("ulysses", int64_t{u}).set("placement", std::string(placement)));
      if (problem.parallelism.topology().nodes == 1) break;
    }
  }
  return list;
}

std::vector<Parallelism> allowed(const Case& problem) {
  std::vector<Parallelism> list;
  for (const Strategy& strategy : strategies()) {
    for (const StrategyOptions& options : options_of(strategy, problem)) {
      Parallelism p = problem.parallelism;
      p.strategy = strategy.name;
      p.options = options;
      Problem shape;
      shape.heads_q = problem.heads_q;
      shape.heads_kv = problem.heads_kv;
      if (strategy.supports(shape, p.topology(), options))
        list.push_back(normalised(p, problem.heads_q, problem.heads_kv));
    }
  }
  return list;
}

}  // namespace

std::vector<Candidate> advise(const Case& problem, const Machine& machine,
                              const std::function<void(const std::string&)>& progress) {
  const Machine slower = with_links(machine, kSlower), faster = with_links(machine, kFaster);
  std::vector<Candidate> candidates;
  for (const Parallelism& p : allowed(problem)) {
    Candidate& candidate = candidates.emplace_back();
    candidate.parallelism = p;
    if (progress) progress(describe_strategy(p));
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      Case c = problem;
      c.parallelism = p;
      c.direction = direction;
      const record::CaseRecord record = predict(c, machine).record;
      (direction == Direction::kForward ? candidate.forward_s : candidate.backward_s) = *record.time_s;
      candidate.slower_links_s += *predict(c, slower).record.time_s;
      candidate.faster_links_s += *predict(c, faster).record.time_s;
      for (const double bytes : record.parallel->held_bytes)
        candidate.held_bytes = std::max(candidate.held_bytes, bytes);
    }
  }
  LONGSPAN_CHECK_INPUT(!candidates.empty(), "no strategy supports {} ranks and {}:{} heads",
                       problem.parallelism.ranks, problem.heads_q, problem.heads_kv);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time_s() < b.time_s(); });
  return candidates;
}

}  // namespace longspan::bench
