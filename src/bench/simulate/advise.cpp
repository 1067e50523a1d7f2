#include "bench/simulate/advise.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "bench/measure/mask_source.h"
#include "bench/simulate/predict.h"
#include "bench/spec/values.h"

namespace longspan::bench {
namespace {

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

// q, k, v, o and their gradients, and lse.
double bytes_of_token(const Case& c) {
  const int64_t dim_v = c.head_dim_v == 0 ? c.head_dim : c.head_dim_v;
  const auto elements = static_cast<double>((c.heads_q + c.heads_kv) * (c.head_dim + dim_v));
  return 2 * elements * static_cast<double>(size_of(c.dtype)) + 4 * static_cast<double>(c.heads_q);
}

// Adds one mask's times: planned once, and priced once for each pass, since only links differ.
void add_mask(Candidate& candidate, std::vector<double> (&held)[2], const PlannedMask& mask,
              const simulate::Cluster& cluster, const Topology& topology, double share) {
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const bool forward = direction == Direction::kForward;
    const simulate::Program program = program_of(mask, direction, cluster);
    const auto time_s = [&](const simulate::Cluster& on) {
      return share * simulate::run(program, on, topology).time_s;
    };
    const simulate::Timeline timeline = simulate::run(program, cluster, topology);
    (forward ? candidate.forward_s : candidate.backward_s) += share * timeline.time_s;
    const simulate::RankTimes& slowest =
        *std::max_element(timeline.ranks.begin(), timeline.ranks.end(),
                          [](const auto& a, const auto& b) { return a.end_s < b.end_s; });
    candidate.compute_s += share * slowest.compute_s;
    candidate.exposed_s += share * slowest.exposed_s;
    candidate.reorder_s += share * slowest.reorder_s;
    candidate.merge_s += share * slowest.merge_s;
    candidate.slower_links_s += time_s(with_links(cluster, kSlowerLinks));
    candidate.faster_links_s += time_s(with_links(cluster, kFasterLinks));
    const std::vector<double> of_mask = held_by_rank(mask, direction, cluster.links.takes_rows);
    std::vector<double>& sums = held[forward ? 0 : 1];
    sums.resize(of_mask.size());
    for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += share * of_mask[rank];
  }
}

}  // namespace

std::string reason_of(const Candidate& slower, const Candidate& faster) {
  struct Part {
    double more_s;
    const char *verb, *what;
  };
  const Part parts[] = {{slower.compute_s - faster.compute_s, "computes", ""},
                        {slower.exposed_s - faster.exposed_s, "waits", " for data"},
                        {slower.reorder_s - faster.reorder_s, "packs", ""},
                        {slower.merge_s - faster.merge_s, "adds and merges", ""}};
  const Part& most = *std::max_element(std::begin(parts), std::end(parts),
                                       [](const Part& a, const Part& b) { return a.more_s < b.more_s; });
  if (most.more_s <= 0) return "";
  return fmt::format("{} {} longer{}", most.verb, format_seconds(most.more_s), most.what);
}

std::vector<Candidate> advise(const Case& problem, const Machine& machine, double memory_bytes,
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
    double tensors = 0;           // of the rank with the most tokens
    for (int64_t i = 0; i < c.masks; ++i) {
      const PlannedMask mask = plan_mask(c, source.next().masks);
      for (const Ranges& owned : mask.schedule.owned)
        tensors = std::max(tensors, static_cast<double>(count(owned)) * bytes_of_token(c));
      add_mask(candidate, held, mask, cluster, p.topology(), 1 / static_cast<double>(c.masks));
    }
    for (const std::vector<double>& by_rank : held) {
      for (const double bytes : by_rank) candidate.held_bytes = std::max(candidate.held_bytes, bytes);
    }
    candidate.memory_bytes = tensors + candidate.held_bytes;
    candidate.fits = memory_bytes <= 0 || candidate.memory_bytes <= memory_bytes;
  }
  LONGSPAN_CHECK_INPUT(!candidates.empty(), "no strategy supports {} ranks and {}:{} heads",
                       problem.parallelism.ranks, problem.heads_q, problem.heads_kv);
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.fits != b.fits ? a.fits : a.time_s() < b.time_s();
  });
  return candidates;
}

}  // namespace longspan::bench
