#include "cp/schedule/account.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

namespace longspan {
namespace {

// The bands of a mask, searchable by rows.
class BandIndex {
 public:
  explicit BandIndex(const Mask& mask) {
    for (const Band& band : mask.bands()) entries_.push_back({band, 0});
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.band.q.begin < b.band.q.begin; });
    int64_t reach = 0;
    for (Entry& entry : entries_) entry.reach = reach = std::max(reach, entry.band.q.end);
  }

  // The number of visible pairs between rows and a set of keys, computed without gathering a mask.
  int64_t area_between(const Ranges& q, const Ranges& kv) const {
    int64_t area = 0;
    for (const Range& rows : q) {
      auto entry = std::lower_bound(entries_.begin(), entries_.end(), rows.end,
                                    [](const Entry& e, int64_t end) { return e.band.q.begin < end; });
      while (entry != entries_.begin() && (--entry)->reach > rows.begin) {
        const Range columns = entry->band.k;
        auto range = std::lower_bound(kv.begin(), kv.end(), columns.begin,
                                      [](const Range& r, int64_t begin) { return r.end <= begin; });
        for (; range != kv.end() && range->begin < columns.end; ++range) {
          const Band part = intersection(entry->band, Band{rows, *range});
          if (!part.q.empty() && !part.k.empty()) area += part.area();
        }
      }
    }
    return area;
  }

 private:
  struct Entry {
    Band band;
    int64_t reach;  // the largest row end among the entries so far, which bounds a backward search
  };
  std::vector<Entry> entries_;
};

// Visible pairs of attends, cached. The backward pass repeats the attends of the forward pass. If all heads
// share a mask, all groups of heads have equal areas.
class Areas {
 public:
  Areas(const Schedule& schedule, const Problem& problem)
      : schedule_(schedule), problem_(problem), alike_(schedule.regions.size(), -1) {
    for (const Mask& mask : *problem.masks) bands_.emplace_back(mask);
  }

  int64_t of(const Attend& attend) {
    const bool one_mask = problem_.masks->size() == 1;
    const int64_t heads = one_mask ? schedule_.regions[attend.q].heads.size() : 1;
    const int32_t q = one_mask ? alike(attend.q) : attend.q, kv = one_mask ? alike(attend.kv) : attend.kv;
    const uint64_t key = uint64_t{static_cast<uint32_t>(q)} << 32 | static_cast<uint32_t>(kv);
    const auto [it, fresh] = known_.try_emplace(key, 0);
    if (fresh) it->second = area_of(attend);
    return it->second * heads;
  }

 private:
  // Per query head if all heads share a mask, otherwise the total over the attend's heads.
  int64_t area_of(const Attend& attend) const {
    const Region &q = schedule_.regions[attend.q], &kv = schedule_.regions[attend.kv];
    if (bands_.size() == 1) return bands_.front().area_between(q.tokens, kv.tokens.set());
    const int64_t ratio = q.heads.size() / kv.heads.size();
    int64_t area = 0;
    for (int64_t head = kv.heads.begin; head < kv.heads.end; ++head)
      area += bands_[static_cast<size_t>(head)].area_between(q.tokens, kv.tokens.set()) * ratio;
    return area;
  }

  // The index of the first known region with the same tokens.
  int32_t alike(int32_t number) {
    int32_t& first = alike_[static_cast<size_t>(number)];
    if (first >= 0) return first;
    const TokenList& tokens = schedule_.regions[number].tokens;
    const auto [known, fresh] = by_identity_.try_emplace(tokens.identity(), number);
    if (!fresh) return first = alike(known->second);
    uint64_t hash = tokens.size();
    for (const Range& range : tokens) {
      for (const int64_t end : {range.begin, range.end})
        hash = (hash ^ static_cast<uint64_t>(end)) * 0x9e3779b97f4a7c15 ^ hash >> 29;
    }
    std::vector<int32_t>& candidates = by_hash_[hash];
    const auto same = std::find_if(candidates.begin(), candidates.end(),
                                   [&](int32_t c) { return schedule_.regions[c].tokens == tokens; });
    if (same != candidates.end()) return first = *same;
    candidates.push_back(number);
    return first = number;
  }

  const Schedule& schedule_;
  const Problem& problem_;
  std::vector<BandIndex> bands_;                          // by KV head, or one
  std::vector<int32_t> alike_;                            // by region; -1: not computed yet
  std::unordered_map<const void*, int32_t> by_identity_;  // the first region with this list
  std::unordered_map<uint64_t, std::vector<int32_t>> by_hash_;
  std::unordered_map<uint64_t, int64_t> known_;
};

// `kept`: elements kept by the forward pass.
int64_t peak_of(const Schedule& schedule, const std::vector<RankRound>& rounds, const Problem& problem,
                int64_t kept) {
  const std::vector<int32_t> last = last_uses(schedule, rounds);
  std::vector<int64_t> change(rounds.size() + 2);  // change in the elements of held copies, by round
  size_t arrived = 0;
  for (size_t i = 0; i < rounds.size(); ++i) {
    for (const Move& move : rounds[i].copies_in) {
      const int64_t elements = elements_of(move, schedule, problem);
      change[i == 0 ? 0 : i - 1] += elements;  // it arrives during the round before
      change[static_cast<size_t>(last[arrived++]) + 1] -= elements;
    }
  }
  int64_t held = kept, peak = kept;
  for (int64_t step : change) peak = std::max(peak, held += step);
  return peak;
}

PassCost cost_of_pass(const Schedule& schedule, Direction direction, const Problem& problem,
                      const Topology& topology, Areas& areas) {
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  const std::vector<int64_t> zero(static_cast<size_t>(schedule.ranks));
  PassCost cost{{}, zero, zero, zero, zero, 1};
  std::vector<int> node_of(zero.size());
  for (int rank = 0; rank < schedule.ranks; ++rank)
    node_of[static_cast<size_t>(rank)] = topology.node_of(rank);
  for (const Round& round : rounds) {
    RoundCost& here = cost.rounds.emplace_back(RoundCost{zero, zero, zero});
    for (const auto* moves : {&round.in, &round.out}) {
      for (const Move& move : *moves) {
        const bool within = node_of[move.src] == node_of[move.dst];
        (within ? here.sent_within : here.sent_between)[move.src] += bytes_of(move, schedule, problem);
      }
    }
    for (const Attend& attend : round.attend) here.area[attend.rank] += areas.of(attend);
    for (size_t rank = 0; rank < zero.size(); ++rank) {
      cost.sent_within[rank] += here.sent_within[rank];
      cost.sent_between[rank] += here.sent_between[rank];
      cost.area[rank] += here.area[rank];
    }
  }
  std::vector<int64_t> kept = zero;
  if (direction == Direction::kBackward) {
    for (const Round& round : schedule.forward) {
      for (const Move& move : round.in) {
        if (move.keep) kept[static_cast<size_t>(move.dst)] += elements_of(move, schedule, problem);
      }
    }
  }
  const auto by_rank = rounds_by_rank(schedule, direction, RoundParts::kUsesOfCopies);
  for (size_t rank = 0; rank < zero.size(); ++rank)
    cost.peak_elements[rank] = peak_of(schedule, by_rank[rank], problem, kept[rank]);
  const int64_t total = std::accumulate(cost.area.begin(), cost.area.end(), int64_t{0});
  const int64_t most = *std::max_element(cost.area.begin(), cost.area.end());
  if (total > 0) cost.imbalance = static_cast<double>(most) * schedule.ranks / static_cast<double>(total);
  return cost;
}

}  // namespace

int64_t PassCost::most_sent() const {
  int64_t most = 0;
  for (size_t rank = 0; rank < area.size(); ++rank) most = std::max(most, sent(rank));
  return most;
}

int64_t PassCost::all_sent() const {
  int64_t sum = 0;
  for (size_t rank = 0; rank < area.size(); ++rank) sum += sent(rank);
  return sum;
}

Cost cost_of(const Schedule& schedule, const Problem& problem, const Topology& topology) {
  Areas areas(schedule, problem);
  Cost cost;
  cost.forward = cost_of_pass(schedule, Direction::kForward, problem, topology, areas);
  cost.backward = cost_of_pass(schedule, Direction::kBackward, problem, topology, areas);
  return cost;
}

int64_t buffer_bytes(const Schedule& schedule, const Problem& problem, const Cost& cost, int rank,
                     Direction direction) {
  const auto operand = static_cast<int64_t>(size_of(problem.dtype));
  const int64_t own = count(schedule.owned[static_cast<size_t>(rank)]);
  const auto dim_of = [&](Operand what) {
    const auto [first, second] = head_dims_of(what, problem);
    return first + second;
  };
  const int64_t row_dim = dim_of(direction == Direction::kForward ? Operand::kO : Operand::kDq);
  const auto sum = [&](const std::vector<Move>& moves) {
    int64_t bytes = 0;
    for (const Move& move : moves) bytes += bytes_of(move, schedule, problem);
    return bytes;
  };
  int64_t leaves = 0, rows = 0, keys = 0, given = 0, taken = 0, lse = 0;
  std::map<Operand, int64_t> beside;  // own rows copied beside arriving ones, by operand
  for (const RankRound& round : rounds_of(schedule, direction, rank)) {
    leaves = std::max(leaves, sum(round.copies_out));
    given = std::max(given, sum(round.given));
    taken = std::max(taken, sum(round.taken));
    int64_t round_rows = 0, round_keys = 0;
    for (const Attend& attend : round.attend) {
      const Region &q = schedule.regions[attend.q], &kv = schedule.regions[attend.kv];
      round_rows += count(q.tokens) * q.heads.size() * (row_dim + 1) * 4;
      round_keys += count(kv.tokens) * kv.heads.size() * dim_of(Operand::kDkv) * 4;
    }
    rows = std::max(rows, round_rows);
    keys = std::max(keys, round_keys);
    for (const Move& move : round.copies_in) {
      const int64_t heads = move.what == Operand::kKV ? problem.heads_kv : problem.heads_q;
      beside[move.what] = own * dim_of(move.what) * operand * heads;
      if (has_lse(move.what, problem)) beside[move.what] += own * problem.heads_q * 4;
      lse += bytes_of(move, schedule, problem) - elements_of(move, schedule, problem) * operand;
    }
  }
  int64_t kept = 0;
  std::set<int32_t> seen;
  for (const RankRound& round : rounds_of(schedule, Direction::kForward, rank)) {
    for (const Attend& attend : round.attend) {
      const Region& q = schedule.regions[attend.q];
      if (seen.insert(attend.q).second && q.tokens != schedule.owned[static_cast<size_t>(rank)])
        kept += count(q.tokens) * q.heads.size() * (dim_of(Operand::kO) * operand + 4);
    }
  }
  int64_t limit = cost.of(direction).peak_elements[static_cast<size_t>(rank)] * operand + lse + leaves +
                  kept + 2 * rows + given + taken;
  for (const auto& [what, bytes] : beside) limit += bytes;
  return direction == Direction::kForward ? limit : limit + 2 * keys;
}

}  // namespace longspan
