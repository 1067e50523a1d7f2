#include "cp/strategies/blocks.h"

#include <algorithm>

#include "base/error.h"

namespace longspan {

Grid::Grid(const Problem& problem, int heads, int contexts, Placement placement, Sharding sharding,
           std::span<const Ranges> owned)
    : problem_(problem),
      heads_(heads),
      contexts_(contexts),
      placement_(placement),
      owned_(owned.begin(), owned.end()) {
  if (!owned.empty()) {
    tokens_.resize(static_cast<size_t>(contexts));
    for (int context = 0; context < contexts; ++context) {
      for (int head = 0; head < heads; ++head) {
        for (const Range& range : this->owned(head, context))
          append(tokens_[static_cast<size_t>(context)], range);
      }
    }
    return;
  }
  tokens_ = shard(problem, contexts, sharding);
  owned_.resize(static_cast<size_t>(heads) * static_cast<size_t>(contexts));
  for (int context = 0; context < contexts; ++context) {
    const Ranges& list = tokens(context);
    for (int head = 0; head < heads; ++head) {
      const Range part = part_of({0, count(list)}, head, heads);
      owned_[static_cast<size_t>(rank(head, context))] = slice(list, part.begin, part.end);
    }
  }
}

Range Grid::query_heads(int head) const {
  if (problem_.heads_kv % heads_ == 0) {
    const Range kv = part_of({0, problem_.heads_kv}, head, heads_);
    return {kv.begin * problem_.group_size(), kv.end * problem_.group_size()};
  }
  return part_of({0, problem_.heads_q}, head, heads_);
}

Range Grid::kv_heads(int head) const {
  const Range q = query_heads(head);
  return {problem_.kv_head_of(q.begin), problem_.kv_head_of(q.end - 1) + 1};
}

bool Grid::replicates_kv() const {
  for (int head = 0; head + 1 < heads_; ++head) {
    if (kv_heads(head).end > kv_heads(head + 1).begin) return true;
  }
  return false;
}

std::vector<Grid::Heads> Grid::groups(int head) const {
  const Range q = query_heads(head);
  const int64_t group = problem_.group_size();
  std::vector<Heads> groups;
  for (int64_t begin = q.begin; begin < q.end;) {
    const bool whole = begin % group == 0 && q.end - begin >= group;
    const int64_t end = whole ? q.end / group * group : std::min(q.end, (begin / group + 1) * group);
    groups.push_back({{begin, end}, {begin / group, (end + group - 1) / group}});
    begin = end;
  }
  return groups;
}

Schedule begin_schedule(std::string_view strategy, const Grid& grid) {
  Schedule schedule;
  schedule.strategy = strategy;
  schedule.ranks = grid.heads() * grid.contexts();
  schedule.owned.resize(static_cast<size_t>(schedule.ranks));
  for (int c = 0; c < grid.contexts(); ++c) {
    for (int h = 0; h < grid.heads(); ++h)
      schedule.owned[static_cast<size_t>(grid.rank(h, c))] = grid.owned(h, c);
  }
  return schedule;
}

namespace {

bool of_kv(Operand what) {
  return what == Operand::kKV || what == Operand::kDkv;
}

// Calls visit(owner, worker, region) for each pair of different ranks of a context position. The region has
// the owner's tokens and the worker's heads.
template <class Visit>
void for_each_exchange(Schedule& schedule, const Grid& grid, Operand what, Visit visit) {
  for (int c = 0; c < grid.contexts(); ++c) {
    for (int owner = 0; owner < grid.heads(); ++owner) {
      const Ranges& tokens = grid.owned(owner, c);
      if (tokens.empty()) continue;
      for (int worker = 0; worker < grid.heads(); ++worker) {
        if (worker == owner) continue;
        const Range heads = of_kv(what) ? grid.kv_heads(worker) : grid.query_heads(worker);
        visit(grid.rank(owner, c), grid.rank(worker, c), schedule.add_region({tokens, heads}));
      }
    }
  }
}

}  // namespace

void add_to_heads(Round& round, Schedule& schedule, const Grid& grid, std::span<const Operand> operands) {
  for (Operand what : operands) {
    for_each_exchange(schedule, grid, what, [&](int owner, int worker, int32_t region) {
      const bool keep = what == Operand::kQ || what == Operand::kKV;
      round.in.push_back({what, keep, false, owner, worker, region});
    });
  }
}

void add_to_owners(Round& round, Schedule& schedule, const Grid& grid, std::span<const Operand> results) {
  for (Operand what : results) {
    const bool fp32 = what == Operand::kDkv && grid.replicates_kv();
    for_each_exchange(schedule, grid, what, [&](int owner, int worker, int32_t region) {
      round.out.push_back({what, false, fp32, worker, owner, region});
    });
  }
}

int RingOrder::position(int origin, int step) const {
  const int window = (origin / inner + step / inner) % windows;
  return window * inner + (origin % inner + step % inner) % inner;
}

int RingOrder::source_step(int step) const {
  return step % inner != 0 ? step - 1 : step - inner;
}

int RingOrder::send_round(int step) const {
  return step % inner != 0 || inner == 1 ? step : step - inner + 1;
}

void add_ring(Schedule& schedule, const Problem& problem, const Grid& grid, RingOrder order,
              bool skip_unneeded) {
  const int steps = order.steps();
  LONGSPAN_CHECK(steps == grid.contexts(), "a ring of {} steps over {} positions", steps, grid.contexts());
  for (auto* pass : {&schedule.forward, &schedule.backward}) {
    if (static_cast<int>(pass->size()) < steps) pass->resize(static_cast<size_t>(steps));
  }
  auto both = [&](int round, auto&& edit) {
    edit(schedule.forward[static_cast<size_t>(round)]);
    edit(schedule.backward[static_cast<size_t>(round)]);
  };

  for (int h = 0; h < grid.heads(); ++h) {
    const Range kv_heads = grid.kv_heads(h);
    const std::vector<Grid::Heads> groups = grid.groups(h);
    std::vector<Ranges> needed(static_cast<size_t>(steps));  // by position, each a set
    std::vector<std::vector<int32_t>> queries(static_cast<size_t>(steps));
    for (int c = 0; c < steps; ++c) {
      const Ranges& rows = grid.tokens(c);
      needed[static_cast<size_t>(c)] =
          skip_unneeded ? needed_keys(problem, rows, kv_heads) : Ranges{{0, problem.tokens_kv}};
      if (rows.empty()) needed[static_cast<size_t>(c)].clear();
      for (const Grid::Heads& heads : groups) {
        queries[static_cast<size_t>(c)].push_back(schedule.add_region({rows, heads.q}));
      }
    }

    for (int origin = 0; origin < steps; ++origin) {
      const Ranges& keys = grid.tokens(origin);
      const Ranges key_set = set_of(keys);
      // The keys to send at each step: those needed by this position and by all that receive them from it.
      std::vector<Ranges> wanted(static_cast<size_t>(steps));
      for (int step = steps - 1; step >= 0; --step) {
        Ranges& here = wanted[static_cast<size_t>(step)];
        if (here != key_set)
          here =
              united(here, intersection(needed[static_cast<size_t>(order.position(origin, step))], key_set));
        if (step > 0) {
          Ranges& source = wanted[static_cast<size_t>(order.source_step(step))];
          if (source != key_set) source = united(source, here);
        }
      }
      // The owner attends to all of its keys, even to those that no row sees. This sends nothing, needs no
      // row packing, and gives every key a gradient before other ranks' gradients are added.
      wanted.front() = key_set;

      // Few of the sets differ: usually all keys are sent to every position.
      std::vector<std::pair<Ranges, int32_t>> known;
      const auto region_of = [&](const Ranges& set) {
        for (const auto& [same, region] : known) {
          if (same == set) return region;
        }
        return known.emplace_back(set, schedule.add_region({select(keys, set), kv_heads})).second;
      };

      Ranges gradient;         // keys whose gradient is being passed on: a set
      int gradient_rank = -1;  // the rank that holds it
      int gradient_round = 0;  // the round that completes it there
      auto hand_gradient_to = [&](int rank) {
        const int32_t region = region_of(gradient);
        schedule.backward[static_cast<size_t>(gradient_round)].out.push_back(
            {Operand::kDkv, false, true, gradient_rank, rank, region});
      };
      for (int step = 0; step < steps; ++step) {
        const Ranges& set = wanted[static_cast<size_t>(step)];
        if (set.empty()) continue;
        const int position = order.position(origin, step);
        const int rank = grid.rank(h, position);
        const int32_t region = region_of(set);
        if (step > 0) {
          const int source = grid.rank(h, order.position(origin, order.source_step(step)));
          both(order.send_round(step), [&](Round& round) {
            round.in.push_back({Operand::kKV, false, false, source, rank, region});
          });
        }
        if (step > 0 && intersection(needed[static_cast<size_t>(position)], set).empty()) continue;
        for (size_t g = 0; g < groups.size(); ++g) {
          int32_t kv = region;
          if (groups[g].kv != kv_heads) {
            Ranges tokens = schedule.regions[region].tokens;
            kv = schedule.add_region({std::move(tokens), groups[g].kv});
          }
          both(step, [&](Round& round) {
            round.attend.push_back({rank, queries[static_cast<size_t>(position)][g], kv});
          });
        }
        if (step == 0) continue;  // the owner keeps its own part of the gradient
        if (gradient_rank >= 0) hand_gradient_to(rank);
        if (gradient != key_set) gradient = united(gradient, set);
        gradient_rank = rank;
        gradient_round = step;
      }
      if (gradient_rank >= 0) hand_gradient_to(grid.rank(h, origin));
    }
  }
}

void add_adjoint(Schedule& schedule, bool dq_final, bool dkv_final) {
  const size_t rounds = schedule.forward.size();
  schedule.backward.assign(rounds, {});
  for (size_t i = 0; i < rounds; ++i) {
    const Round& forward = schedule.forward[i];
    schedule.backward[i].attend = forward.attend;
    for (const Move& move : forward.in) {
      if (!move.keep) schedule.backward[i].in.push_back(move);
      if (move.what == Operand::kQ) {
        schedule.backward[rounds - 1].out.push_back(
            {Operand::kDq, false, !dq_final, move.dst, move.src, move.region});
      } else {
        schedule.backward[i].out.push_back(
            {Operand::kDkv, false, !dkv_final, move.dst, move.src, move.region});
      }
    }
    for (const Move& move : forward.out) {
      schedule.backward[0].in.push_back({Operand::kDo, false, false, move.dst, move.src, move.region});
      // The backward pass needs the merged o and its lse, not a partial one.
      if (move.fp32)
        schedule.backward[0].in.push_back({Operand::kO, false, false, move.dst, move.src, move.region});
    }
  }
}

}  // namespace longspan
