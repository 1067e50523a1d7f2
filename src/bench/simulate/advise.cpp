#include "bench/simulate/advise.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

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

std::vector<Parallelism> candidates_of(const Case& problem, Shardings shardings) {
  std::vector<Parallelism> list;
  Problem shape;
  shape.heads_q = problem.heads_q;
  shape.heads_kv = problem.heads_kv;
  const Topology topology = problem.parallelism.topology();
  for (const Strategy& strategy : strategies()) {
    const auto add = [&](const StrategyOptions& options) {
      if (!strategy.supports(shape, topology, options)) return;
      Parallelism p = problem.parallelism;
      p.strategy = strategy.name;
      p.options = options;
      list.push_back(normalised(p, problem.heads_q, problem.heads_kv));
    };
    for (const StrategyOptions& options : options_of(strategy, problem)) {
      add(options);
      if (shardings == Shardings::kOwn || !strategy.supports(shape, topology, options)) continue;
      // A ring chooses `per-document`. Ulysses attends to all tokens, whoever owns them; `balanced` has its
      // own.
      const StrategyOptions own = strategy.resolve(shape, topology, options);
      if (own.choice<Sharding>(kSharding) != Sharding::kPerDocument) continue;
      for (const Sharding other : {Sharding::kContiguous, Sharding::kZigzag})
        add(StrategyOptions(options).set("sharding", std::string(name_of(other))));
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
void add_mask(Candidate& candidate, std::array<std::vector<double>, 2>& held, const PlannedMask& mask,
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

namespace {

// The kernels to try, and why the others are refused.
std::vector<std::string> kernels_for(const Case& problem, const Machine& machine,
                                     std::map<std::string, std::string>& refused) {
  if (!problem.kernel.empty()) return {problem.kernel};
  std::vector<std::string> kernels;
  for (const auto& [name, kernel] : machine.kernels) {
    if (const Support support = kernel.takes(problem)) {
      kernels.push_back(name);
    } else {
      refused[name] = support.reason;
    }
  }
  std::vector<std::string> reasons;
  reasons.reserve(refused.size());
  for (const auto& [name, reason] : refused) reasons.push_back(fmt::format("{} {}", name, reason));
  LONGSPAN_CHECK_INPUT(!kernels.empty(), "{} on {}", fmt::join(reasons, "; "), machine.name);
  return kernels;
}

// A strategy on a problem: a candidate of each kernel, and the tokens that each rank owns of each mask.
struct Tried {
  std::vector<Candidate> candidates;
  std::vector<std::vector<Ranges>> owned;
};

// Each mask is planned once for all kernels.
Tried try_strategy(const Case& problem, const Parallelism& p, const Machine& machine,
                   const std::vector<std::string>& kernels) {
  Tried tried;
  std::vector<simulate::Cluster> clusters;
  Case c = problem;
  c.parallelism = p;
  for (const std::string& kernel : kernels) {
    c.kernel = kernel;
    clusters.push_back(cluster_of(c, machine));
    tried.candidates.push_back({.kernel = kernel, .parallelism = p});
  }
  std::vector<std::array<std::vector<double>, 2>> held(kernels.size());  // by kernel, pass and rank
  double tensors = 0;                                                    // of the rank with the most tokens
  MaskSource source(c);
  for (int64_t i = 0; i < c.masks; ++i) {
    const PlannedMask mask = plan_mask(c, source.next().masks);
    tried.owned.push_back(mask.schedule.owned);
    for (const Ranges& owned : mask.schedule.owned)
      tensors = std::max(tensors, static_cast<double>(count(owned)) * bytes_of_token(c));
    for (size_t k = 0; k < kernels.size(); ++k)
      add_mask(tried.candidates[k], held[k], mask, clusters[k], p.topology(),
               1 / static_cast<double>(c.masks));
  }
  for (size_t k = 0; k < kernels.size(); ++k) {
    Candidate& candidate = tried.candidates[k];
    for (const std::vector<double>& by_rank : held[k]) {
      for (const double bytes : by_rank) candidate.held_bytes = std::max(candidate.held_bytes, bytes);
    }
    candidate.memory_bytes = tensors + candidate.held_bytes;
  }
  return tried;
}

}  // namespace

Advice advise(const Case& problem, const Machine& machine, double memory_bytes, Shardings shardings,
              const std::function<void(const std::string&)>& progress) {
  Advice advice;
  const std::vector<std::string> kernels = kernels_for(problem, machine, advice.refused);
  std::vector<std::vector<std::vector<Ranges>>> known;  // the tokens of ranks with other shardings
  for (const Parallelism& p : candidates_of(problem, shardings)) {
    if (progress) progress(describe_strategy(p));
    Tried tried = try_strategy(problem, p, machine, kernels);
    // A mask without documents is sharded alike by several rules.
    if (p.options.find("sharding") == nullptr) known.clear();
    if (std::find(known.begin(), known.end(), tried.owned) != known.end()) continue;
    known.push_back(std::move(tried.owned));
    for (Candidate& candidate : tried.candidates) {
      candidate.fits = memory_bytes <= 0 || candidate.memory_bytes <= memory_bytes;
      advice.candidates.push_back(std::move(candidate));
    }
  }
  LONGSPAN_CHECK_INPUT(!advice.candidates.empty(), "no strategy supports {} ranks and {}:{} heads",
                       problem.parallelism.ranks, problem.heads_q, problem.heads_kv);
  std::stable_sort(advice.candidates.begin(), advice.candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.fits != b.fits ? a.fits : a.time_s() < b.time_s();
                   });
  return advice;
}

}  // namespace longspan::bench
