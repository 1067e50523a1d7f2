#include "cp/execute/placement.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "cp/execute/pieces.h"
#include "cp/schedule/range_index.h"

namespace longspan {
namespace {

// Adds a landing for a region that is read, if each of its rows either arrives or is the rank's own.
void add_landing(std::vector<Landing>& landings, const Schedule& schedule, const RankRound& round,
                 const Ranges& owned, Operand what, int32_t number) {
  const Region& region = schedule.regions[number];
  for (const Landing& known : landings) {
    if (known.what == what && schedule.regions[known.region] == region) return;
  }
  Landing landing{what, number, {}, false};
  Ranges arriving;
  for (size_t i = 0; i < round.copies_in.size(); ++i) {
    const Move& move = round.copies_in[i];
    const Region& part = schedule.regions[move.region];
    if (move.what != what || part.heads != region.heads) continue;
    if (part.tokens == region.tokens) return;  // the copy is the whole region: no landing needed
    const int64_t row = position_of(part.tokens, region.tokens);
    if (row < 0) continue;
    landing.arrivals.push_back({i, row});
    arriving.insert(arriving.end(), part.tokens.begin(), part.tokens.end());
  }
  if (landing.arrivals.empty()) return;
  const Ranges rest = difference(region.tokens.set(), set_of(arriving));
  if (!includes(set_of(owned), rest)) return;
  landing.with_own = !rest.empty();
  landings.push_back(std::move(landing));
}

struct Part {
  Ranges set;
  Range heads;
  int32_t region;
};

bool meet(const Part& a, const Part& b) {
  return a.heads.begin < b.heads.end && b.heads.begin < a.heads.end && overlap(a.set, b.set);
}

}  // namespace

std::vector<Landing> landings_of(const Schedule& schedule, const RankRound& round, const Ranges& owned) {
  std::vector<Landing> landings;
  for (const Attend& attend : round.attend) {
    for (Operand what : {Operand::kQ, Operand::kDo})
      add_landing(landings, schedule, round, owned, what, attend.q);
    add_landing(landings, schedule, round, owned, Operand::kKV, attend.kv);
  }
  // Each copy can arrive in one place only.
  std::vector<bool> taken(round.copies_in.size());
  std::erase_if(landings, [&](const Landing& landing) {
    const auto& arrivals = landing.arrivals;
    if (std::any_of(arrivals.begin(), arrivals.end(), [&](const auto& a) { return taken[a.move]; }))
      return true;
    for (const auto& arrival : arrivals) taken[arrival.move] = true;
    return false;
  });
  return landings;
}

namespace {

// Regions of one operand, searchable by the rows and heads that they share. A ring has thousands.
class RegionIndex {
 public:
  explicit RegionIndex(const Schedule& schedule) : schedule_(schedule) {}

  void add(int32_t number) {
    if (known_.insert(number).second) index_.add(number, schedule_.regions[number].tokens);
  }
  void build() { index_.build(); }

  template <class Visit>
  void for_each_meeting(int32_t number, Visit visit) const {
    const Region& region = schedule_.regions[number];
    for (const Range& range : region.tokens) {
      if (range.empty()) continue;
      index_.for_each_overlap(range, [&](int32_t other) {
        const Range heads = schedule_.regions[other].heads;
        if (region.heads.begin < heads.end && heads.begin < region.heads.end) visit(other);
      });
    }
  }

 private:
  const Schedule& schedule_;
  std::unordered_set<int32_t> known_;
  RangeIndex index_;
};

// What is added to one operand on a rank: by its attends, and by other ranks.
class Contributions {
 public:
  explicit Contributions(const Schedule& schedule)
      : schedule_(schedule), attended_(schedule), open_(schedule) {}

  void add_attend(int32_t region, size_t number) {
    attended_.add(region);
    attends_.try_emplace(region, Span{number, number}).first->second.last = number;
  }
  // A part that arrives, or that leaves unfinished.
  void add_open(int32_t region) { open_.add(region); }
  void build() {
    attended_.build();
    open_.build();
  }

  // Of attend `number`, which has this region.
  Result result_of(int32_t region, size_t number) {
    const auto [known, fresh] = shared_.try_emplace(region);
    Shared& shared = known->second;
    if (fresh) {
      open_.for_each_meeting(region, [&](int32_t) { shared.complete = false; });
      attended_.for_each_meeting(region, [&](int32_t other) {
        const Span& attends = attends_.at(other);
        shared.attends.first = std::min(shared.attends.first, attends.first);
        shared.attends.last = std::max(shared.attends.last, attends.last);
        if (other != region && schedule_.regions[other] != schedule_.regions[region]) shared.complete = false;
      });
    }
    return {shared.attends.first >= number, shared.attends.last <= number, shared.complete};
  }

 private:
  struct Span {
    size_t first = SIZE_MAX, last = 0;  // numbers of attends
  };
  struct Shared {
    Span attends;  // all that share rows and heads with a region
    bool complete = true;
  };
  const Schedule& schedule_;
  RegionIndex attended_, open_;
  std::unordered_map<int32_t, Span> attends_;   // by their region
  std::unordered_map<int32_t, Shared> shared_;  // by region
};

}  // namespace

std::vector<std::vector<Results>> results_of(const Schedule& schedule, Direction direction,
                                             const std::vector<RankRound>& rounds) {
  const Operand of_rows = direction == Direction::kForward ? Operand::kO : Operand::kDq;
  Contributions rows(schedule), keys(schedule);
  size_t attends = 0;
  for (const RankRound& round : rounds) {
    for (const Attend& attend : round.attend) {
      rows.add_attend(attend.q, attends);
      keys.add_attend(attend.kv, attends);
      ++attends;
    }
    for (const Move& move : round.taken) (move.what == of_rows ? rows : keys).add_open(move.region);
    for (const Move& move : round.given) {
      if (move.fp32) (move.what == of_rows ? rows : keys).add_open(move.region);
    }
  }
  rows.build();
  keys.build();
  std::vector<std::vector<Results>> results;
  size_t number = 0;
  for (const RankRound& round : rounds) {
    std::vector<Results>& each = results.emplace_back();
    for (const Attend& attend : round.attend) {
      each.push_back({rows.result_of(attend.q, number), {}});
      if (direction == Direction::kBackward) each.back().keys = keys.result_of(attend.kv, number);
      ++number;
    }
  }
  return results;
}

std::vector<std::vector<bool>> results_in_place(const Schedule& schedule,
                                                const std::vector<RankRound>& rounds, const Ranges& owned) {
  const auto part_of_region = [&](int32_t number) {
    const Region& region = schedule.regions[number];
    return Part{region.tokens.set(), region.heads, number};
  };
  std::vector<Part> rows, keys;  // regions attended on this rank
  std::vector<std::pair<const Move*, Part>> taken;
  for (const RankRound& round : rounds) {
    for (const Attend& attend : round.attend) {
      rows.push_back(part_of_region(attend.q));
      keys.push_back(part_of_region(attend.kv));
    }
    for (const Move& move : round.taken) taken.emplace_back(&move, part_of_region(move.region));
  }
  std::vector<std::vector<bool>> in_place;
  for (const RankRound& round : rounds) {
    std::vector<bool>& each = in_place.emplace_back();
    for (const Move& move : round.taken) {
      const Part part = part_of_region(move.region);
      const auto meets = [&](const Part& other) { return meet(part, other); };
      const std::vector<Part>& attended = move.what == Operand::kDkv ? keys : rows;
      each.push_back(!move.fp32 && schedule.regions[move.region].tokens == owned &&
                     std::none_of(attended.begin(), attended.end(), meets) &&
                     std::none_of(taken.begin(), taken.end(), [&](const auto& other) {
                       return other.first != &move && other.first->what == move.what &&
                              meet(part, other.second);
                     }));
    }
  }
  return in_place;
}

namespace {

void share_among_rounds(std::vector<Rooms>& rooms, std::vector<size_t> Rooms::*list) {
  std::vector<size_t> most;
  std::vector<std::vector<size_t>> orders;  // by round: indices into the list, by size
  for (const Rooms& round : rooms) {
    const std::vector<size_t>& sizes = round.*list;
    std::vector<size_t>& order = orders.emplace_back(sizes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
    most.resize(std::max(most.size(), order.size()));
    for (size_t i = 0; i < order.size(); ++i) most[i] = std::max(most[i], sizes[order[i]]);
  }
  for (size_t round = 0; round < rooms.size(); ++round) {
    for (size_t i = 0; i < orders[round].size(); ++i) (rooms[round].*list)[orders[round][i]] = most[i];
  }
}

}  // namespace

std::vector<Rooms> rooms_of(const Schedule& schedule, const Problem& problem, Direction direction,
                            const std::vector<RankRound>& rounds,
                            const std::vector<std::vector<Landing>>& landings,
                            const std::vector<std::vector<Results>>& results) {
  const bool forward = direction == Direction::kForward;
  const auto bytes = [&](Operand what, int32_t number, bool fp32) {
    const Region& region = schedule.regions[number];
    return piece_bytes({what, fp32 ? DType::kF32 : problem.dtype, problem}, count(region.tokens),
                       region.heads);
  };
  std::vector<Rooms> rooms(rounds.size());
  for (size_t i = 0; i < rounds.size(); ++i) {
    const RankRound& round = rounds[i];
    Rooms& here = rooms[i];
    for (const Move& move : round.copies_out) here.copies_out.push_back(bytes(move.what, move.region, false));
    std::vector<bool> landed(round.copies_in.size());
    for (const Landing& landing : landings[i]) {
      here.arriving.push_back(bytes(landing.what, landing.region, false));
      for (const Landing::Arrival& arrival : landing.arrivals) landed[arrival.move] = true;
    }
    for (size_t m = 0; m < landed.size(); ++m) {
      const Move& move = round.copies_in[m];
      if (!landed[m]) here.arriving.push_back(bytes(move.what, move.region, false));
    }
    for (const Move& move : round.given) here.given.push_back(bytes(move.what, move.region, move.fp32));
    for (const Move& move : round.taken) here.taken.push_back(bytes(move.what, move.region, move.fp32));
    for (size_t a = 0; a < round.attend.size(); ++a) {
      const Attend& attend = round.attend[a];
      const auto part = [&](Operand what, int32_t region, const Result& result) {
        return result.alone() ? 0 : bytes(what, region, true);
      };
      here.rows.push_back(part(forward ? Operand::kO : Operand::kDq, attend.q, results[i][a].rows));
      here.keys.push_back(forward ? 0 : part(Operand::kDkv, attend.kv, results[i][a].keys));
    }
  }
  for (auto list :
       {&Rooms::copies_out, &Rooms::arriving, &Rooms::given, &Rooms::taken, &Rooms::rows, &Rooms::keys}) {
    share_among_rounds(rooms, list);
  }
  return rooms;
}

const Kept::Place* Kept::of_rows(int32_t region) const {
  const auto place = std::find_if(places.begin(), places.end(), [&](const Place& each) {
    return each.what == Operand::kO && each.region == region;
  });
  return place == places.end() ? nullptr : &*place;
}

Kept kept_of(const Schedule& schedule, const Problem& problem, const std::vector<RankRound>& rounds,
             const std::vector<std::vector<Landing>>& landings) {
  Kept kept;
  const auto add = [&](Operand what, int32_t number, int64_t copy_bytes) {
    const Region& region = schedule.regions[number];
    kept.places.push_back({what, number, kept.bytes, copy_bytes});
    kept.bytes += piece_bytes({what, problem.dtype, problem}, count(region.tokens), region.heads);
    return static_cast<int32_t>(kept.places.size()) - 1;
  };
  bool rows_leave = false;  // complete ones; partial ones return with the backward pass's copies
  for (size_t i = 0; i < rounds.size(); ++i) {
    const std::vector<Move>& copies = rounds[i].copies_in;
    std::vector<int32_t>& here = kept.arriving.emplace_back();
    std::vector<bool> landed(copies.size());
    for (const Landing& landing : landings[i]) {
      bool keep = false;
      int64_t bytes = 0;
      for (const Landing::Arrival& arrival : landing.arrivals) {
        landed[arrival.move] = true;
        keep = keep || copies[arrival.move].keep;
        bytes += bytes_of(copies[arrival.move], schedule, problem);
      }
      here.push_back(keep ? add(landing.what, landing.region, bytes) : -1);
    }
    for (size_t m = 0; m < copies.size(); ++m) {
      if (landed[m]) continue;
      const int64_t bytes = bytes_of(copies[m], schedule, problem);
      here.push_back(copies[m].keep ? add(copies[m].what, copies[m].region, bytes) : -1);
    }
    for (const Move& move : rounds[i].given)
      rows_leave = rows_leave || (move.what == Operand::kO && !move.fp32);
  }
  for (const RankRound& round : rounds) {
    for (const Attend& attend : round.attend) {
      if (rows_leave && kept.of_rows(attend.q) == nullptr) add(Operand::kO, attend.q, 0);
    }
  }
  return kept;
}

}  // namespace longspan
