#include "cp/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "cp/schedule/range_index.h"

namespace longspan {

std::string_view name_of(Operand what) {
  switch (what) {
    case Operand::kQ:
      return "q";
    case Operand::kKV:
      return "kv";
    case Operand::kO:
      return "o";
    case Operand::kDo:
      return "do";
    case Operand::kDq:
      return "dq";
    case Operand::kDkv:
      return "dkv";
  }
  return "?";
}

std::array<int64_t, 2> head_dims_of(Operand what, const Problem& problem) {
  switch (what) {
    case Operand::kKV:
    case Operand::kDkv:
      return {problem.head_dim, problem.dim_v()};
    case Operand::kO:
    case Operand::kDo:
      return {problem.dim_v(), 0};
    case Operand::kQ:
    case Operand::kDq:
      break;
  }
  return {problem.head_dim, 0};
}

bool has_lse(Operand what, const Problem& problem) {
  return what == Operand::kO || (what == Operand::kDo && problem.lse_gradient);
}

int Topology::node_of(int rank) const {
  LONGSPAN_CHECK_INPUT(devices >= 1 && 0 <= rank && rank < ranks(),
                       "rank {} of {} nodes of {} devices: must be from 0 to {}", rank, nodes, devices,
                       ranks() - 1);
  return rank / devices;
}

int32_t Schedule::add_region(Region region) {
  regions.push_back(std::move(region));
  return static_cast<int32_t>(regions.size()) - 1;
}

int64_t elements_of(const Move& move, const Schedule& schedule, const Problem& problem) {
  const Region& region = schedule.regions[move.region];
  const auto [first, second] = head_dims_of(move.what, problem);
  return region.tokens.tokens() * region.heads.size() * (first + second);
}

int64_t bytes_of(const Move& move, const Schedule& schedule, const Problem& problem) {
  const Region& region = schedule.regions[move.region];
  const auto element = static_cast<int64_t>(size_of(move.fp32 ? DType::kF32 : problem.dtype));
  int64_t bytes = elements_of(move, schedule, problem) * element;
  if (has_lse(move.what, problem)) bytes += region.tokens.tokens() * region.heads.size() * 4;
  return bytes;
}

namespace {

// Which heads of each operand arrive anywhere as copies that are not kept, and in which round first.
class FirstArrivals {
 public:
  explicit FirstArrivals(const Schedule& schedule) : schedule_(schedule) {}

  void add(const Move& move, size_t round) {
    if (move.keep) return;
    const Range heads = schedule_.regions[move.region].heads;
    std::vector<Arrival>& arrivals = by_operand_[static_cast<size_t>(move.what)];
    const bool known = std::any_of(arrivals.rbegin(), arrivals.rend(),
                                   [&](const Arrival& arrival) { return arrival.heads == heads; });
    if (!known) arrivals.push_back({heads, round});
  }

  // Whether the move can send a copy that arrived before the previous round, and so is still in use in that
  // one. A copy that is sent on at once is in use until then anyway.
  bool can_extend_use(const Move& move, size_t round) const {
    const std::vector<Arrival>& arrivals = by_operand_[static_cast<size_t>(move.what)];
    if (arrivals.empty() || arrivals.front().round + 1 >= round) return false;
    const Range heads = schedule_.regions[move.region].heads;
    return std::any_of(arrivals.begin(), arrivals.end(), [&](const Arrival& arrival) {
      return arrival.round + 1 < round && arrival.heads.begin < heads.end && heads.begin < arrival.heads.end;
    });
  }

 private:
  struct Arrival {
    Range heads;
    size_t round;
  };
  const Schedule& schedule_;
  std::array<std::vector<Arrival>, 6> by_operand_;  // in order of rounds
};

}  // namespace

std::vector<std::vector<RankRound>> rounds_by_rank(const Schedule& schedule, Direction direction,
                                                   RoundParts parts) {
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  std::vector<std::vector<RankRound>> ranks(static_cast<size_t>(schedule.ranks),
                                            std::vector<RankRound>(rounds.size()));
  std::vector<size_t> leaving, arriving;  // numbers of moves, by rank
  const auto count_moves = [&](const std::vector<Move>& moves) {
    leaving.assign(ranks.size(), 0);
    arriving.assign(ranks.size(), 0);
    for (const Move& move : moves) ++leaving[move.src], ++arriving[move.dst];
  };
  FirstArrivals arrivals(schedule);
  for (size_t i = 0; i < rounds.size(); ++i) {
    count_moves(rounds[i].in);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (parts == RoundParts::kAll) ranks[rank][i].copies_out.reserve(leaving[rank]);
      ranks[rank][i].copies_in.reserve(arriving[rank]);
    }
    for (const Move& move : rounds[i].in) {
      if (parts == RoundParts::kAll || arrivals.can_extend_use(move, i))
        ranks[move.src][i].copies_out.push_back(move);
      ranks[move.dst][i].copies_in.push_back(move);
    }
    for (const Attend& attend : rounds[i].attend) ranks[attend.rank][i].attend.push_back(attend);
    if (parts == RoundParts::kUsesOfCopies) {
      for (const Move& move : rounds[i].in) arrivals.add(move, i);
      continue;
    }
    count_moves(rounds[i].out);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank][i].given.reserve(leaving[rank]);
      ranks[rank][i].taken.reserve(arriving[rank]);
    }
    for (const Move& move : rounds[i].out) {
      ranks[move.src][i].given.push_back(move);
      ranks[move.dst][i].taken.push_back(move);
    }
  }
  return ranks;
}

std::vector<RankRound> rounds_of(const Schedule& schedule, Direction direction, int rank) {
  return std::move(rounds_by_rank(schedule, direction)[static_cast<size_t>(rank)]);
}

std::vector<int32_t> last_uses(const Schedule& schedule, const std::vector<RankRound>& rounds) {
  struct Group {  // the copies of one operand with the same heads
    Range heads;
    std::vector<int32_t> numbers;
    std::vector<std::pair<int32_t, int32_t>> of_region;  // (region, copy), sorted
    std::optional<RangeIndex> copies;                    // made on first use
  };
  const auto total = static_cast<int32_t>(rounds.size());
  std::vector<int32_t> arrival, last, regions;  // by copy
  std::array<std::vector<Group>, 6> by_operand;
  int rank = -1;
  for (int32_t round = 0; round < total; ++round) {
    for (const Attend& attend : rounds[round].attend) rank = attend.rank;
    for (const Move& move : rounds[round].copies_out) rank = move.src;
    for (const Move& move : rounds[round].copies_in) {
      arrival.push_back(round);
      last.push_back(move.keep ? total : round);
      regions.push_back(move.region);
      if (move.keep) continue;  // kept to the end, whatever uses it
      const Range heads = schedule.regions[move.region].heads;
      std::vector<Group>& groups = by_operand[static_cast<size_t>(move.what)];
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& other) { return other.heads == heads; });
      if (group == groups.end()) group = groups.insert(group, {heads, {}, {}, {}});
      group->numbers.push_back(static_cast<int32_t>(last.size()) - 1);
      group->of_region.emplace_back(move.region, group->numbers.back());
    }
  }
  for (std::vector<Group>& groups : by_operand) {
    for (Group& group : groups) std::sort(group.of_region.begin(), group.of_region.end());
  }
  const Ranges owned = rank < 0 ? Ranges() : set_of(schedule.owned[static_cast<size_t>(rank)]);
  auto use = [&](Operand what, int32_t number, int32_t round, int32_t arrived_by) {
    std::vector<Group>& groups = by_operand[static_cast<size_t>(what)];
    if (groups.empty()) return;
    const Region& region = schedule.regions[number];
    // A copy is in use from its arrival on, so only groups that had copies before this round can change.
    if (std::none_of(groups.begin(), groups.end(), [&](const Group& group) {
          return arrival[group.numbers.front()] < round && region.heads.begin < group.heads.end &&
                 group.heads.begin < region.heads.end;
        })) {
      return;
    }
    const auto use_copy = [&](int32_t copy) {
      if (arrival[copy] > arrived_by) return false;
      last[copy] = std::max(last[copy], round);
      return true;
    };
    // Fast paths: the region arrived as one copy, is part of the newest one, or is all the rank's own. No
    // other copy is then needed.
    bool found = false;
    for (const Group& group : groups) {
      auto same = std::lower_bound(group.of_region.begin(), group.of_region.end(), std::pair{number, 0});
      for (; same != group.of_region.end() && same->first == number; ++same)
        found = use_copy(same->second) || found;
    }
    if (found) return;
    if (region.tokens.inside(owned)) return;
    for (const Group& group : groups) {
      if (region.heads.begin < group.heads.begin || group.heads.end < region.heads.end) continue;
      const auto later = std::upper_bound(group.numbers.begin(), group.numbers.end(), arrived_by,
                                          [&](int32_t by, int32_t copy) { return by < arrival[copy]; });
      if (later == group.numbers.begin()) continue;
      const int32_t newest = *std::prev(later);
      if (region.tokens.inside(schedule.regions[regions[newest]].tokens.set())) {
        use_copy(newest);
        return;
      }
    }
    for (Group& group : groups) {
      if (region.heads.end <= group.heads.begin || group.heads.end <= region.heads.begin) continue;
      if (!group.copies) {
        group.copies.emplace();
        for (int32_t copy : group.numbers) group.copies->add(copy, schedule.regions[regions[copy]].tokens);
        group.copies->build();
      }
      for (const Range& range : region.tokens) {
        if (!range.empty()) group.copies->for_each_overlap(range, use_copy);
      }
    }
  };
  for (int32_t round = 0; round < total; ++round) {
    // Data for a round is sent during the round before.
    for (const Move& move : rounds[round].copies_out) use(move.what, move.region, round - 1, round - 1);
    for (const Attend& attend : rounds[round].attend) {
      for (Operand what : {Operand::kQ, Operand::kDo, Operand::kO}) use(what, attend.q, round, round);
      use(Operand::kKV, attend.kv, round, round);
    }
  }
  return last;
}

}  // namespace longspan
