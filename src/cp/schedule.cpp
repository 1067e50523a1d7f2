#include "cp/schedule.h"

#include <algorithm>
#include <array>

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

}  // namespace

int64_t elements_of(const Move& move, const Schedule& schedule, const Problem& problem) {
  const Region& region = schedule.regions[move.region];
  return count(region.tokens) * region.heads.size() * problem.head_dim * (is_pair(move.what) ? 2 : 1);
}

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

namespace {

// The copies of one operand that a rank receives, by the tokens that they hold.
class CopyIndex {
 public:
  void add(int32_t copy, const Ranges& tokens) {
    for (const Range& range : tokens) {
      if (!range.empty()) entries_.push_back({range, 0, copy});
    }
  }

  void build() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.range.begin < b.range.begin; });
    int64_t reach = 0;
    for (Entry& entry : entries_) entry.reach = reach = std::max(reach, entry.range.end);
  }

  // Calls visit(copy) for each entry that shares a token with the range.
  template <class Visit>
  void for_each_overlap(const Range& range, Visit visit) const {
    auto entry = std::lower_bound(entries_.begin(), entries_.end(), range.end,
                                  [](const Entry& e, int64_t end) { return e.range.begin < end; });
    while (entry != entries_.begin() && (--entry)->reach > range.begin) {
      if (entry->range.end > range.begin) visit(entry->copy);
    }
  }

 private:
  struct Entry {
    Range range;
    int64_t reach;  // the largest end up to here: nothing before can overlap what begins later
    int32_t copy;
  };
  std::vector<Entry> entries_;
};

}  // namespace

std::vector<int32_t> last_uses(const Schedule& schedule, const std::vector<RankRound>& rounds) {
  struct Group {  // the copies of one operand for the same heads
    Range heads;
    CopyIndex copies;
  };
  const auto total = static_cast<int32_t>(rounds.size());
  std::vector<int32_t> arrival, last;  // by copy
  std::array<std::vector<Group>, 6> by_operand;
  for (int32_t round = 0; round < total; ++round) {
    for (const Move& move : rounds[round].copies_in) {
      arrival.push_back(round);
      last.push_back(move.keep ? total : round);
      if (move.keep) continue;  // whatever uses it
      const Region& region = schedule.regions[move.region];
      std::vector<Group>& groups = by_operand[static_cast<size_t>(move.what)];
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const Group& other) { return other.heads == region.heads; });
      if (group == groups.end()) group = groups.insert(group, {region.heads, {}});
      group->copies.add(static_cast<int32_t>(arrival.size()) - 1, region.tokens);
    }
  }
  for (std::vector<Group>& groups : by_operand) {
    for (Group& group : groups) group.copies.build();
  }
  auto use = [&](Operand what, int32_t number, int32_t round, int32_t arrived_by) {
    const Region& region = schedule.regions[number];
    for (const Group& group : by_operand[static_cast<size_t>(what)]) {
      if (region.heads.end <= group.heads.begin || group.heads.end <= region.heads.begin) continue;
      for (const Range& range : region.tokens) {
        if (range.empty()) continue;
        group.copies.for_each_overlap(range, [&](int32_t copy) {
          if (arrival[copy] <= arrived_by && last[copy] < round) last[copy] = round;
        });
      }
    }
  };
  for (int32_t round = 0; round < total; ++round) {
    // What leaves for a round leaves while the round before is computed.
    for (const Move& move : rounds[round].copies_out) use(move.what, move.region, round - 1, round - 1);
    for (const Attend& attend : rounds[round].attend) {
      for (Operand what : {Operand::kQ, Operand::kDo, Operand::kO}) use(what, attend.q, round, round);
      use(Operand::kKV, attend.kv, round, round);
    }
  }
  return last;
}

namespace {

// Visible pairs between the rows q and the keys kv.
int64_t area_between(const Mask& mask, const Ranges& q, const Ranges& kv) {
  constexpr size_t kFewBands = 4;
  if (mask.bands().size() > kFewBands) return mask.gather(q, kv).area();
  int64_t area = 0;  // without making a mask of the part
  for (const Band& band : mask.bands()) {
    for (const Range& rows : q) {
      for (const Range& keys : kv) {
        const Band part = intersection(band, Band{rows, keys});
        if (!part.q.empty() && !part.k.empty()) area += part.area();
      }
    }
  }
  return area;
}

}  // namespace

int64_t area_of(const Attend& attend, const Schedule& schedule, const Problem& problem) {
  const Region &q = schedule.regions[attend.q], &kv = schedule.regions[attend.kv];
  const int64_t ratio = q.heads.size() / kv.heads.size();
  if (problem.masks->size() == 1) {
    return area_between(problem.masks->front(), q.tokens, kv.tokens) * q.heads.size();
  }
  int64_t area = 0;
  for (int64_t head = kv.heads.begin; head < kv.heads.end; ++head) {
    area += area_between(problem.mask_of_kv_head(head), q.tokens, kv.tokens) * ratio;
  }
  return area;
}

}  // namespace longspan
