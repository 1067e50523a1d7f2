#include "cp/schedule.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

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

int32_t Schedule::add_region(Region region) {
  regions.push_back(std::move(region));
  return static_cast<int32_t>(regions.size()) - 1;
}

namespace {

bool is_pair(Operand what) {
  return what == Operand::kKV || what == Operand::kDkv;
}

int64_t elements_of(const Move& move, const Schedule& schedule, const Problem& problem) {
  const Region& region = schedule.regions[move.region];
  return count(region.tokens) * region.heads.size() * problem.head_dim * (is_pair(move.what) ? 2 : 1);
}

}  // namespace

int64_t bytes_of(const Move& move, const Schedule& schedule, const Problem& problem) {
  const Region& region = schedule.regions[move.region];
  const auto element = static_cast<int64_t>(size_of(move.fp32 ? DType::kF32 : problem.dtype));
  int64_t bytes = elements_of(move, schedule, problem) * element;
  if (move.what == Operand::kO) bytes += count(region.tokens) * region.heads.size() * 4;  // lse
  return bytes;
}

std::vector<std::vector<RankRound>> rounds_by_rank(const Schedule& schedule, Direction direction) {
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  std::vector<std::vector<RankRound>> ranks(static_cast<size_t>(schedule.ranks),
                                            std::vector<RankRound>(rounds.size()));
  for (size_t i = 0; i < rounds.size(); ++i) {
    for (const Move& move : rounds[i].in) {
      ranks[move.src][i].copies_out.push_back(move);
      ranks[move.dst][i].copies_in.push_back(move);
    }
    for (const Attend& attend : rounds[i].attend) ranks[attend.rank][i].attend.push_back(attend);
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
  struct Copy {
    Operand what;
    int32_t region;
    Ranges tokens;  // a set
    Range heads;
  };
  std::vector<Copy> copies;
  std::vector<int32_t> last;
  auto use = [&](Operand what, int32_t number, size_t arrived, int32_t round) {
    const Region& region = schedule.regions[number];
    Ranges set;
    for (size_t c = 0; c < arrived; ++c) {
      if (copies[c].what != what || last[c] >= round) continue;
      bool uses = copies[c].region == number;
      if (!uses && copies[c].heads.begin < region.heads.end && region.heads.begin < copies[c].heads.end) {
        if (set.empty()) set = set_of(region.tokens);
        uses = !intersection(copies[c].tokens, set).empty();
      }
      if (uses) last[c] = round;
    }
  };
  const auto total = static_cast<int32_t>(rounds.size());
  for (int32_t round = 0; round < total; ++round) {
    for (const Move& move : rounds[round].copies_out) use(move.what, move.region, copies.size(), round);
    for (const Move& move : rounds[round].copies_in) {
      const Region& region = schedule.regions[move.region];
      copies.push_back({move.what, move.region, set_of(region.tokens), region.heads});
      last.push_back(move.keep ? total : round);
    }
    for (const Attend& attend : rounds[round].attend) {
      for (Operand what : {Operand::kQ, Operand::kDo, Operand::kO}) use(what, attend.q, copies.size(), round);
      use(Operand::kKV, attend.kv, copies.size(), round);
    }
  }
  return last;
}

int64_t area_of(const Attend& attend, const Schedule& schedule, const Problem& problem) {
  const Region &q = schedule.regions[attend.q], &kv = schedule.regions[attend.kv];
  const int64_t ratio = q.heads.size() / kv.heads.size();
  if (problem.masks->size() == 1) {
    return problem.masks->front().gather(q.tokens, kv.tokens).area() * q.heads.size();
  }
  int64_t area = 0;
  for (int64_t head = kv.heads.begin; head < kv.heads.end; ++head) {
    area += problem.mask_of_kv_head(head).gather(q.tokens, kv.tokens).area() * ratio;
  }
  return area;
}

PassCost cost_of(const Schedule& schedule, Direction direction, const Problem& problem,
                 const Topology& topology) {
  const auto count_of = static_cast<size_t>(schedule.ranks);
  PassCost cost{std::vector<int64_t>(count_of), std::vector<int64_t>(count_of),
                std::vector<int64_t>(count_of), std::vector<int64_t>(count_of), 0};
  const auto by_rank = rounds_by_rank(schedule, direction);
  for (size_t rank = 0; rank < count_of; ++rank) {
    const auto& rounds = by_rank[rank];
    const std::vector<int32_t> last = last_uses(schedule, rounds);
    std::vector<int64_t> change(rounds.size() + 2);  // elements of copies that come and go, by round
    size_t arrived = 0;
    for (size_t i = 0; i < rounds.size(); ++i) {
      for (const auto* moves : {&rounds[i].copies_out, &rounds[i].given}) {
        for (const Move& move : *moves) {
          const bool within = topology.node_of(move.src) == topology.node_of(move.dst);
          (within ? cost.sent_within : cost.sent_between)[rank] += bytes_of(move, schedule, problem);
        }
      }
      for (const Move& move : rounds[i].copies_in) {
        const int64_t elements = elements_of(move, schedule, problem);
        change[i] += elements;
        change[static_cast<size_t>(last[arrived++]) + 1] -= elements;
      }
      for (const Attend& attend : rounds[i].attend) cost.area[rank] += area_of(attend, schedule, problem);
    }
    int64_t held = 0;
    for (int64_t step : change) cost.peak_elements[rank] = std::max(cost.peak_elements[rank], held += step);
  }
  const int64_t total = std::accumulate(cost.area.begin(), cost.area.end(), int64_t{0});
  const int64_t most = *std::max_element(cost.area.begin(), cost.area.end());
  cost.imbalance = total > 0 ? static_cast<double>(most) * schedule.ranks / static_cast<double>(total) : 1;
  return cost;
}

}  // namespace longspan
