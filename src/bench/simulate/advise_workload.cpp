#include "bench/simulate/advise_workload.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/parallel.h"
#include "bench/measure/mask_source.h"
#include "bench/simulate/advise.h"
#include "bench/simulate/degrees.h"
#include "bench/simulate/predict.h"
#include "bench/spec/values.h"
#include "cp/schedule/account.h"
#include "mask/patterns/document_lengths.h"

namespace longspan::bench {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A group's degree, and the strategy that it runs; none on a single GPU.
struct GroupKind {
  int degree = 1;
  Parallelism parallelism;
};

// Degrees whose groups lie within a node, or consist of whole nodes.
std::vector<GroupKind> choices_of(const Case& base) {
  const Topology all = base.parallelism.topology();
  std::vector<GroupKind> choices;
  for (int degree = 1; degree <= all.ranks(); ++degree) {
    const bool in_node = all.devices % degree == 0;
    const bool of_nodes = degree % all.devices == 0 && all.nodes % (degree / all.devices) == 0;
    if (!in_node && !of_nodes) continue;
    if (degree == 1) {
      choices.push_back({});
      continue;
    }
    Case problem = base;
    problem.parallelism.ranks = degree;
    problem.parallelism.nodes = in_node ? 0 : degree / all.devices;
    for (Parallelism& p : candidates_of(problem)) choices.push_back({degree, std::move(p)});
  }
  return choices;
}

// A micro-batch with its choice, in one layer. Sums are over the ranks of the group and both passes.
struct Price {
  double time_s = 0, planning_s = 0;
  double busy_s = 0, exposed_s = 0, between_bytes = 0;
  double held_bytes = 0;  // of the rank that holds the most; 0 above 64 ranks
};

Price price_of(const Case& c, const Machine& machine) {
  Price price;
  const simulate::Cluster cluster = cluster_of(c, machine);
  HeadMasks masks = MaskSource(c).next().masks;
  const Direction passes[] = {Direction::kForward, Direction::kBackward};
  if (!c.parallelism) {
    const Problem problem = problem_of(c, std::move(masks));
    for (const Direction pass : passes) price.time_s += estimate_s(problem, pass, cluster.kernel);
    price.busy_s = price.time_s;
    return price;
  }
  const double begin_s = now_s();
  const PlannedMask mask = plan_mask(c, std::move(masks));
  price.planning_s = now_s() - begin_s;
  const Topology topology = c.parallelism.topology();
  for (const Direction pass : passes) {
    const simulate::Timeline timeline = simulate::run(program_of(mask, pass, cluster), cluster, topology);
    price.time_s += timeline.time_s;
    for (const simulate::RankTimes& rank : timeline.ranks) {
      price.busy_s += rank.compute_s + rank.reorder_s + rank.merge_s;
      price.exposed_s += rank.exposed_s;
    }
    for (const double held : held_by_rank(mask, pass, cluster.links.takes_rows))
      price.held_bytes = std::max(price.held_bytes, held);
  }
  if (topology.nodes > 1) {
    const Cost cost = cost_of(mask.schedule, mask.problem, topology);
    for (const Direction pass : passes) {
      const std::vector<int64_t>& sent = cost.of(pass).sent_between;
      price.between_bytes += static_cast<double>(std::accumulate(sent.begin(), sent.end(), int64_t{0}));
    }
  }
  return price;
}

class Adviser {
 public:
  Adviser(const Workload& workload, const Case& base, const Machine& machine)
      : w_(workload),
        machine_(machine),
        base_(base),
        ranks_(base.parallelism.topology().ranks()),
        layers_(static_cast<double>(workload.layers_of_stage())) {
    base_.heads_q = w_.heads_q_per_gpu();
    base_.heads_kv = w_.heads_kv_per_gpu();
    base_.head_dim = w_.head_dim;
    choices_ = choices_of(base_);
    std::map<std::string, size_t> known;  // equal micro-batches are priced once
    for (const WorkloadStep& step : w_.steps) {
      std::vector<size_t>& numbers = steps_.emplace_back();
      for (const MicroBatch& batch : step.micro_batches) {
        const Case c = case_of(step, batch);
        const auto [at, fresh] = known.try_emplace(id_of(c), cases_.size());
        if (fresh) cases_.push_back(c);
        numbers.push_back(at->second);
      }
    }
  }

  WorkloadAdvice advice(const std::function<void(const std::string&)>& progress) {
    const double begin_s = now_s();
    price_all(progress);
    WorkloadAdvice advice;
    advice.pricing_s = now_s() - begin_s;
    check_memory();
    const auto one_for_all = [&](size_t step, size_t choice) {
      return std::vector<size_t>(steps_[step].size(), choice);
    };
    for (size_t choice = 0; choice < choices_.size(); ++choice) {
      Policy& p = advice.fixed.emplace_back(policy([&](size_t step) { return one_for_all(step, choice); }));
      p.degree = choices_[choice].degree;
      p.parallelism = choices_[choice].parallelism;
    }
    std::vector<size_t> best;  // choice, by step
    for (size_t step = 0; step < steps_.size(); ++step) best.push_back(best_for(step));
    // A step may lack a degree that fits all of its micro-batches.
    advice.each_step.fits = std::find(best.begin(), best.end(), choices_.size()) == best.end();
    if (advice.each_step.fits)
      advice.each_step = policy([&](size_t step) { return one_for_all(step, best[step]); });
    advice.each_micro_batch = policy([&](size_t step) { return groups_for(step); });
    set_regrets(advice);
    std::stable_sort(advice.fixed.begin(), advice.fixed.end(), [](const Policy& a, const Policy& b) {
      const auto key = [](const Policy& p) {
        const double time_s = std::accumulate(p.step_s.begin(), p.step_s.end(), 0.0);
        return std::tuple(p.degree, !p.fits, p.fits ? time_s : p.memory_bytes);
      };
      return key(a) < key(b);
    });
    return advice;
  }

 private:
  Case case_of(const WorkloadStep& step, const MicroBatch& batch) const {
    Case c = base_;
    c.parallelism = {};
    c.mask = step.mask;
    c.options = step.options;
    c.seqlen = tokens_of(batch);
    c.lengths = list_of_lengths(batch);
    return normalised(c);
  }

  void price_all(const std::function<void(const std::string&)>& progress) {
    prices_.assign(cases_.size(), std::vector<Price>(choices_.size()));
    const auto tasks = static_cast<int64_t>(cases_.size() * choices_.size());
    std::mutex mutex;
    int64_t done = 0;
    parallel_for(tasks, [&](int64_t task, int) {
      const size_t batch = static_cast<size_t>(task) / choices_.size();
      const size_t choice = static_cast<size_t>(task) % choices_.size();
      Case c = cases_[batch];
      c.parallelism = choices_[choice].parallelism;
      prices_[batch][choice] = price_of(c, machine_);
      const std::lock_guard lock(mutex);
      if (progress && ++done % 16 == 0)
        progress(fmt::format("simulating: {} of {} choices of micro-batches", done, tasks));
    });
  }

  // What attention keeps for the backward pass, of all layers of the stage and of the micro-batches that its
  // pipeline has under way; the gradients of one layer; and the buffers of a pass.
  double memory_bytes(size_t batch, size_t choice) const {
    const Case& c = cases_[batch];
    const int degree = choices_[choice].degree;
    const int64_t most_tokens = (c.seqlen + degree - 1) / degree;
    const auto tokens = static_cast<double>(most_tokens);
    const auto element = static_cast<double>(size_of(c.dtype)) * static_cast<double>(c.head_dim);
    const auto q = static_cast<double>(c.heads_q), kv = static_cast<double>(c.heads_kv);
    const double kept = tokens * ((2 * q + 2 * kv) * element + q * sizeof(float));
    const double gradients = tokens * (2 * q + 2 * kv) * element;
    return kept * layers_ * static_cast<double>(w_.pp) + gradients + prices_[batch][choice].held_bytes;
  }

  bool fits(size_t batch, size_t choice) const {
    return w_.memory_bytes <= 0 || memory_bytes(batch, choice) <= w_.memory_bytes;
  }

  void check_memory() const {
    for (size_t batch = 0; batch < cases_.size(); ++batch) {
      double least = memory_bytes(batch, 0);
      for (size_t choice = 0; choice < choices_.size(); ++choice)
        least = std::min(least, memory_bytes(batch, choice));
      LONGSPAN_CHECK_INPUT(w_.memory_bytes <= 0 || least <= w_.memory_bytes,
                           "a micro-batch of {} tokens needs {} of a GPU, more than the workload's "
                           "memory_bytes, {}, at every degree up to {} ranks; give more ranks or smaller "
                           "micro-batches",
                           cases_[batch].seqlen, format_bytes(least), format_bytes(w_.memory_bytes), ranks_);
    }
  }

  double time_s(size_t batch, size_t choice) const {
    const double outside_s = w_.outside_s_per_token * static_cast<double>(cases_[batch].seqlen);
    return layers_ * prices_[batch][choice].time_s + outside_s / choices_[choice].degree;
  }

  double step_s(size_t step, const std::vector<size_t>& chosen, bool planned) const {
    std::vector<GroupTime> times;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const size_t batch = steps_[step][i];
      const double planning_s = planned ? prices_[batch][chosen[i]].planning_s : 0;
      times.push_back({choices_[chosen[i]].degree, time_s(batch, chosen[i]) + planning_s});
    }
    return step_time_s(ranks_, static_cast<int>(w_.pp), std::move(times));
  }

  // The one choice that makes the step shortest; the number of choices if none fits.
  size_t best_for(size_t step) const {
    size_t best = choices_.size();
    double best_s = 0;
    for (size_t choice = 0; choice < choices_.size(); ++choice) {
      const auto& batches = steps_[step];
      if (!std::all_of(batches.begin(), batches.end(), [&](size_t batch) { return fits(batch, choice); }))
        continue;
      const double time_s = step_s(step, std::vector<size_t>(batches.size(), choice), false);
      if (best != choices_.size() && time_s >= best_s) continue;
      best = choice;
      best_s = time_s;
    }
    return best;
  }

  // A choice for each micro-batch of the step.
  std::vector<size_t> groups_for(size_t step) const {
    std::vector<std::vector<GroupTime>> times;
    std::vector<std::vector<size_t>> numbers;  // of the choices that fit
    for (const size_t batch : steps_[step]) {
      times.emplace_back();
      numbers.emplace_back();
      for (size_t choice = 0; choice < choices_.size(); ++choice) {
        if (!fits(batch, choice)) continue;
        times.back().push_back({choices_[choice].degree, time_s(batch, choice)});
        numbers.back().push_back(choice);
      }
    }
    std::vector<size_t> chosen = choose_groups(ranks_, static_cast<int>(w_.pp), times);
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = numbers[i][chosen[i]];
    // One choice for all may still be shorter than what the deadlines give.
    const size_t one = best_for(step);
    if (one == choices_.size()) return chosen;
    std::vector<size_t> same(chosen.size(), one);
    return step_s(step, same, false) < step_s(step, chosen, false) ? same : chosen;
  }

  template <class Choose>
  Policy policy(Choose&& choose) const {
    Policy p;
    double ranks_s = 0, exposed_s = 0, busy_s = 0;
    for (size_t step = 0; step < steps_.size(); ++step) {
      const std::vector<size_t> chosen = choose(step);
      for (size_t i = 0; i < chosen.size(); ++i) {
        const size_t batch = steps_[step][i];
        const Price& price = prices_[batch][chosen[i]];
        const int degree = choices_[chosen[i]].degree;
        ++p.degrees[degree];
        p.memory_bytes = std::max(p.memory_bytes, memory_bytes(batch, chosen[i]));
        p.fits = p.fits && fits(batch, chosen[i]);
        ranks_s += price.time_s * degree;
        exposed_s += price.exposed_s;
        p.between_bytes += price.between_bytes;
        busy_s += layers_ * price.busy_s + w_.outside_s_per_token * static_cast<double>(cases_[batch].seqlen);
      }
      p.step_s.push_back(step_s(step, chosen, false));
      p.planned_step_s.push_back(step_s(step, chosen, true));
    }
    const double all_s = ranks_ * std::accumulate(p.step_s.begin(), p.step_s.end(), 0.0);
    p.exposed_share = exposed_s / ranks_s;
    p.between_bytes *= static_cast<double>(w_.layers * w_.tp);
    p.idle_gpu_hours = (all_s - busy_s) * static_cast<double>(w_.tp * w_.pp) / 3600;
    if (p.fits) return p;
    Policy none;
    none.fits = false;
    none.memory_bytes = p.memory_bytes;
    return none;
  }

  static void set_regrets(WorkloadAdvice& advice) {
    const auto sum = [](const std::vector<double>& list) {
      return std::accumulate(list.begin(), list.end(), 0.0);
    };
    const double oracle_s = sum(advice.each_micro_batch.step_s);
    const auto set = [&](Policy& p) {
      if (!p.fits) return;
      p.regret = sum(p.step_s) / oracle_s - 1;
      p.planned_regret = sum(p.planned_step_s) / oracle_s - 1;
    };
    for (Policy& p : advice.fixed) set(p);
    set(advice.each_step);
    set(advice.each_micro_batch);
  }

  const Workload& w_;
  const Machine& machine_;
  Case base_;
  const int ranks_;
  const double layers_;  // of a stage
  std::vector<GroupKind> choices_;
  std::vector<Case> cases_;                 // the distinct micro-batches
  std::vector<std::vector<size_t>> steps_;  // their numbers, by step
  std::vector<std::vector<Price>> prices_;  // by case and choice
};

}  // namespace

WorkloadAdvice advise_workload(const Workload& workload, const Case& base, const Machine& machine,
                               const std::function<void(const std::string&)>& progress) {
  return Adviser(workload, base, machine).advice(progress);
}

}  // namespace longspan::bench
