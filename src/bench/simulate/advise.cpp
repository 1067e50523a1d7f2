#include "bench/simulate/advise.h"

#include <algorithm>

#include "base/error.h"
#include "bench/measure/mask_source.h"
#include "bench/simulate/predict.h"

namespace longspan::bench {
namespace {

constexpr double kSlower = 0.75, kFaster = 1.25;

simulate::Cluster with_links(simulate::Cluster cluster, double factor) {
  simulate::LinkCost& links = cluster.links;
  for (double* rate : {&links.port_bytes_per_s, &links.beside_bytes_per_s, &links.flow_bytes_per_s,
                       &links.interface_bytes_per_s})
    *rate *= factor;
  return cluster;
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

}  // namespace

std::vector<Parallelism> candidates_of(const Case& problem) {
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

namespace {

// Adds one mask's times: planned once, and priced once for each pass, since only links differ.
void add_mask(Candidate& candidate, std::vector<double> (&held)[2], const PlannedMask& mask,
              const simulate::Cluster& cluster, const Topology& topology, double share) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const bool forward = direction == Direction::kForward;
    const simulate::Program program = program_of(mask, direction, cluster);
    const auto time_s = [&](const simulate::Cluster& on) {
      return share * simulate::run(program, on, topology).time_s;
    };
    (forward ? candidate.forward_s : candidate.backward_s) += time_s(cluster);
    candidate.slower_links_s += time_s(with_links(cluster, kSlower));
    candidate.faster_links_s += time_s(with_links(cluster, kFaster));
    const std::vector<double> of_mask = held_by_rank(mask, direction, cluster.links.takes_rows);
    std::vector<double>& sums = held[forward ? 0 : 1];
    sums.resize(of_mask.size());
    for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += share * of_mask[rank];
  }
}

}  // namespace

std::vector<Candidate> advise(const Case& problem, const Machine& machine,
                              const std::function<void(const std::string&)>& progress) {
  std::vector<Candidate> candidates;
  for (const Parallelism& p : candidates_of(problem)) {
    Candidate& candidate = candidates.emplace_back();
    candidate.parallelism = p;
    if (progress) progress(describe_strategy(p));
    Case c = problem;
    c.parallelism = p;
    const simulate::Cluster cluster = cluster_of(c, machine);
    MaskSource source(c);
    std::vector<double> held[2];  // by pass and rank
    for (int64_t i = 0; i < c.masks; ++i) {
      add_mask(candidate, held, plan_mask(c, source.next().masks), cluster, p.topology(),
               1 / static_cast<double>(c.masks));
    }
    for (const std::vector<double>& by_rank : held) {
      for (const double bytes : by_rank) candidate.held_bytes = std::max(candidate.held_bytes, bytes);
    }
  }
  LONGSPAN_CHECK_INPUT(!candidates.empty(), "no strategy supports {} ranks and {}:{} heads",
                       problem.parallelism.ranks, problem.heads_q, problem.heads_kv);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time_s() < b.time_s(); });
  return candidates;
}

}  // namespace longspan::bench
