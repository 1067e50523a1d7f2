// Proves a schedule valid from the schedule and the masks alone, without data.
#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "base/error.h"
#include "cp/schedule/schedule.h"

namespace longspan {
namespace {

std::string describe(const Region& region) {
  std::string tokens;
  for (size_t i = 0; i < std::min<size_t>(region.tokens.size(), 3); ++i) {
    tokens += fmt::format("{}{}-{}", i == 0 ? "" : ",", region.tokens[i].begin, region.tokens[i].end);
  }
  if (region.tokens.size() > 3) tokens += ",...";
  return fmt::format("tokens {} heads {}-{}", tokens, region.heads.begin, region.heads.end);
}

// A set of (token, head) pairs to which regions are added and from which they are removed.
class Rows {
 public:
  void add(const Ranges& set, Range heads) { holdings_.push_back({set, heads}); }

  // Whether all of (set, heads) is in this set.
  bool covers(const Ranges& set, Range heads) const {
    for (const Holding& holding : holdings_) {
      if (holding.heads.begin <= heads.begin && heads.end <= holding.heads.end && includes(holding.set, set))
        return true;
    }
    if (!touches(set, heads)) return set.empty();
    std::vector<int64_t> cuts{heads.begin, heads.end};
    for (const Holding& holding : holdings_) {
      for (int64_t cut : {holding.heads.begin, holding.heads.end}) {
        if (heads.begin < cut && cut < heads.end) cuts.push_back(cut);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      Ranges held;
      for (const Holding& holding : holdings_) {
        if (holding.heads.begin <= cuts[i] && cuts[i + 1] <= holding.heads.end) {
          held.insert(held.end(), holding.set.begin(), holding.set.end());
        }
      }
      if (!difference(set, set_of(held)).empty()) return false;
    }
    return true;
  }

  bool touches(const Ranges& set, Range heads) const {
    return std::any_of(holdings_.begin(), holdings_.end(), [&](const Holding& holding) {
      return holding.heads.begin < heads.end && heads.begin < holding.heads.end && overlap(holding.set, set);
    });
  }

  void remove(const Ranges& set, Range heads) {
    std::vector<Holding> rest;
    for (Holding& holding : holdings_) {
      const Range shared{std::max(holding.heads.begin, heads.begin), std::min(holding.heads.end, heads.end)};
      if (shared.empty() || !overlap(holding.set, set)) {
        rest.push_back(std::move(holding));
        continue;
      }
      for (Range outside : {Range{holding.heads.begin, shared.begin}, Range{shared.end, holding.heads.end}}) {
        if (!outside.empty()) rest.push_back({holding.set, outside});
      }
      Ranges kept = difference(holding.set, set);
      if (!kept.empty()) rest.push_back({std::move(kept), shared});
    }
    holdings_ = std::move(rest);
  }

  bool empty() const { return holdings_.empty(); }

 private:
  struct Holding {
    Ranges set;
    Range heads;
  };
  std::vector<Holding> holdings_;
};

// The union of many disjoint ranges, computed without sorting: one bit marks each token where a range begins,
// another where one ends.
class DisjointUnion {
 public:
  explicit DisjointUnion(int64_t tokens)
      : begins_(static_cast<size_t>(tokens) / 64 + 1), ends_(begins_.size()) {}

  // Returns false if ranges overlap; otherwise sets `set` to the union.
  bool make(const Ranges& ranges, Ranges& set) {
    set.clear();
    if (ranges.size() < begins_.size() / 4) {  // sorting is faster for few ranges
      set = set_of(ranges);
      return count(set) == count(ranges);
    }
    std::fill(begins_.begin(), begins_.end(), 0);
    std::fill(ends_.begin(), ends_.end(), 0);
    for (const Range& range : ranges) {
      if (range.empty()) continue;
      if (!mark(begins_, range.begin) || !mark(ends_, range.end)) return false;
    }
    // No two begin or end at the same token. In order, each must end before the next begins.
    int64_t begin = -1;  // of the open range
    for (size_t word = 0; word < begins_.size(); ++word) {
      for (uint64_t bits = begins_[word] | ends_[word]; bits != 0; bits &= bits - 1) {
        const uint64_t bit = bits & -bits;
        const int64_t token = static_cast<int64_t>(word) * 64 + __builtin_ctzll(bits);
        if ((ends_[word] & bit) != 0) {
          if (begin < 0) return false;
          append(set, {begin, token});
          begin = -1;
        }
        if ((begins_[word] & bit) != 0) {
          if (begin >= 0) return false;
          begin = token;
        }
      }
    }
    return true;
  }

 private:
  static bool mark(std::vector<uint64_t>& bits, int64_t token) {
    uint64_t& word = bits[static_cast<size_t>(token) / 64];
    const uint64_t bit = uint64_t{1} << (token % 64);
    const bool fresh = (word & bit) == 0;
    word |= bit;
    return fresh;
  }

  std::vector<uint64_t> begins_, ends_;
};

class Checker {
 public:
  Checker(const Schedule& schedule, const Problem& problem)
      : schedule_(schedule), problem_(problem), union_(std::max(problem.tokens_q, problem.tokens_kv)) {
    for (const Region& region : schedule.regions) {
      LONGSPAN_CHECK(!region.tokens.repeats(), "region with {} names a token twice", describe(region));
    }
  }

  void run() {
    check_ownership();
    held_.assign(static_cast<size_t>(schedule_.ranks), {});
    kept_ = held_;
    pass(Direction::kForward);
    if (!schedule_.backward.empty()) pass(Direction::kBackward);
  }

 private:
  // The regions with the same heads that a rank holds copies of. None has more than `most_tokens`.
  struct Copies {
    Range heads;
    std::vector<int32_t> regions;
    int64_t most_tokens = 0;
  };
  // The copies that one rank holds, by operand.
  using Held = std::array<std::vector<Copies>, 6>;
  static size_t index(Operand what) { return static_cast<size_t>(what); }

  void hold(Held& held, Operand what, int32_t number) const {
    const Region& region = schedule_.regions[number];
    std::vector<Copies>& groups = held[index(what)];
    auto group = std::find_if(groups.rbegin(), groups.rend(),
                              [&](const Copies& copies) { return copies.heads == region.heads; });
    Copies& copies = group != groups.rend() ? *group : groups.emplace_back(Copies{region.heads, {}, 0});
    copies.regions.push_back(number);
    copies.most_tokens = std::max(copies.most_tokens, region.tokens.tokens());
  }

  const Ranges& set_of_region(int32_t region) const {
    return schedule_.regions[region].tokens.set();
  }  // as a set

  void check_ownership() {
    LONGSPAN_CHECK(static_cast<int>(schedule_.owned.size()) == schedule_.ranks, "{} ranks, but owners of {}",
                   schedule_.ranks, schedule_.owned.size());
    Ranges all;
    for (const Ranges& ranges : schedule_.owned) all.insert(all.end(), ranges.begin(), ranges.end());
    const Ranges set = set_of(all);
    const Ranges expected = set_of(std::vector<Range>{{0, problem_.tokens_q}});
    LONGSPAN_CHECK(set == expected && count(all) == problem_.tokens_q,
                   "the ranks' tokens are not a partition of the {} tokens", problem_.tokens_q);
    for (const Ranges& ranges : schedule_.owned) owned_.push_back(set_of(ranges));
  }

  Range all_heads(Operand what) const {
    const bool kv = what == Operand::kKV || what == Operand::kDkv;
    return {0, kv ? problem_.heads_kv : problem_.heads_q};
  }

  // The union of regions' tokens. Groups of heads bring the same lists again, so each union is kept.
  const Ranges& union_of(const std::vector<int32_t>& regions) const {
    std::vector<const void*> lists;
    lists.reserve(regions.size());
    for (const int32_t region : regions) lists.push_back(schedule_.regions[region].tokens.identity());
    const auto [known, fresh] = unions_.try_emplace(std::move(lists));
    if (fresh) {
      Ranges all;
      for (const int32_t region : regions)
        all.insert(all.end(), set_of_region(region).begin(), set_of_region(region).end());
      known->second = set_of(all);
    }
    return known->second;
  }

  // Whether the tokens are all the rank's own: it holds every head of them.
  bool owns(int rank, int32_t number) const {
    return schedule_.regions[number].tokens.inside(owned_[static_cast<size_t>(rank)]);
  }

  bool holds(int rank, Operand what, int32_t number) const {
    return owns(rank, number) || holds_with_copies(rank, what, number);
  }

  bool holds_with_copies(int rank, Operand what, int32_t number) const {
    const Ranges& own = owned_[static_cast<size_t>(rank)];
    const std::vector<Copies>& held = held_[static_cast<size_t>(rank)][index(what)];
    const Region& region = schedule_.regions[number];
    std::vector<int32_t> wider;  // copies of all these heads, and perhaps more
    for (const Copies& copies : held) {
      if (!inside(region.heads, copies.heads)) continue;
      if (copies.most_tokens >= region.tokens.tokens()) {
        // Search the newest first: a ring forwards what it has just received.
        for (auto copy = copies.regions.rbegin(); copy != copies.regions.rend(); ++copy) {
          if (*copy == number || includes(set_of_region(*copy), set_of_region(number))) return true;
        }
      }
      wider.insert(wider.end(), copies.regions.begin(), copies.regions.end());
    }
    // Mostly the copies hold more heads than are asked for.
    if (includes(united(own, union_of(wider)), set_of_region(number))) return true;
    Rows rows;
    rows.add(own, all_heads(what));
    for (const Copies& copies : held) {
      if (copies.heads.begin >= region.heads.end || region.heads.begin >= copies.heads.end) continue;
      for (const int32_t copy : copies.regions) rows.add(set_of_region(copy), copies.heads);
    }
    return rows.covers(set_of_region(number), region.heads);
  }

  void check_region(int32_t number, Operand what) const {
    const Region& region = schedule_.regions[number];
    const Range heads = all_heads(what);
    LONGSPAN_CHECK(
        heads.begin <= region.heads.begin && !region.heads.empty() && region.heads.end <= heads.end,
        "{} of {}: there are {} heads", name_of(what), describe(region), heads.end);
    LONGSPAN_CHECK(inside(region.tokens.hull(), {0, problem_.tokens_q}), "{} of {}: there are {} tokens",
                   name_of(what), describe(region), problem_.tokens_q);
  }

  void pass(Direction direction) {
    const bool forward = direction == Direction::kForward;
    const auto& rounds = forward ? schedule_.forward : schedule_.backward;
    const auto ranks = static_cast<size_t>(schedule_.ranks);
    using Sums = std::map<Operand, std::vector<Rows>>;
    Sums sums;  // results that each rank has accumulated and not handed over
    for (Operand what : {Operand::kO, Operand::kDq, Operand::kDkv}) sums[what].resize(ranks);
    std::map<Operand, Rows> final_rows;  // handed over as final: nothing may be added later
    std::vector<const Attend*> attends;
    std::span<const Move> before;  // moves of the round before: groups of heads repeat them
    std::vector<bool> sends_own;   // by move of it: whether the source sends its own tokens

    auto accumulate = [&](Operand what, int rank, int32_t number, size_t round) {
      const Range heads = schedule_.regions[number].heads;
      LONGSPAN_CHECK(!final_rows[what].touches(set_of_region(number), heads),
                     "{} pass, round {}: rank {} adds to {} of {} that was handed over as final",
                     name_of(direction), round, rank, name_of(what), describe(schedule_.regions[number]));
      Rows& rows = sums[what][static_cast<size_t>(rank)];
      if (!rows.covers(set_of_region(number), heads)) rows.add(set_of_region(number), heads);
    };

    for (size_t i = 0; i < rounds.size(); ++i) {
      const std::vector<Move>& in = rounds[i].in;
      sends_own.resize(in.size());
      for (size_t m = 0; m < in.size(); ++m) {
        const Move& move = in[m];
        const bool allowed = forward ? move.what == Operand::kQ || move.what == Operand::kKV
                                     : move.what != Operand::kDq && move.what != Operand::kDkv;
        LONGSPAN_CHECK(allowed, "{} pass, round {}: {} is not copied in this pass", name_of(direction), i,
                       name_of(move.what));
        check_region(move.region, move.what);
        const bool again = sends_own[m] && m < before.size() && sends_same_tokens(move, before[m]);
        sends_own[m] = again || owns(move.src, move.region);
        LONGSPAN_CHECK(sends_own[m] || holds_with_copies(move.src, move.what, move.region),
                       "{} pass, round {}: rank {} sends {} of {} to rank {}, but does not hold it",
                       name_of(direction), i, move.src, name_of(move.what),
                       describe(schedule_.regions[move.region]), move.dst);
      }
      before = in;
      for (const Move& move : in) {
        hold(held_[static_cast<size_t>(move.dst)], move.what, move.region);
        if (move.keep) hold(kept_[static_cast<size_t>(move.dst)], move.what, move.region);
      }
      for (const Attend& attend : rounds[i].attend) {
        check_attend(attend, direction, i);
        attends.push_back(&attend);
        if (forward) {
          accumulate(Operand::kO, attend.rank, attend.q, i);
        } else {
          accumulate(Operand::kDq, attend.rank, attend.q, i);
          accumulate(Operand::kDkv, attend.rank, attend.kv, i);
        }
      }
      const std::vector<Move>& out = rounds[i].out;
      for (size_t first = 0; first < out.size();) {
        const size_t end = end_of_run(out, first);
        hand_over({out.data() + first, end - first}, direction, i, sums, final_rows);
        first = end;
      }
    }

    for (auto& [what, by_rank] : sums) {
      for (size_t rank = 0; rank < ranks; ++rank) {
        by_rank[rank].remove(owned_[rank], all_heads(what));
        LONGSPAN_CHECK(by_rank[rank].empty(), "{} pass: rank {} ends with {} of tokens that it does not own",
                       name_of(direction), rank, name_of(what));
      }
    }
    check_coverage(attends, direction);

    // Only kept copies remain for the next pass.
    held_ = kept_;
  }

  bool sends_same_tokens(const Move& a, const Move& b) const {
    return a.src == b.src &&
           schedule_.regions[a.region].tokens.identity() == schedule_.regions[b.region].tokens.identity();
  }

  // The end of the run of moves from `first` on that take partial results of the same heads from one rank.
  size_t end_of_run(const std::vector<Move>& moves, size_t first) const {
    const Move& move = moves[first];
    const Range heads = schedule_.regions[move.region].heads;
    size_t end = first + 1;
    while (end < moves.size() && moves[end].fp32 && move.fp32 && moves[end].what == move.what &&
           moves[end].src == move.src && moves[end].dst != move.src &&
           schedule_.regions[moves[end].region].heads == heads) {
      ++end;
    }
    return end;
  }

  // Removes all of these regions from their rank in one step if it holds them all; single removals would be
  // slow where a rank sends to a thousand others. Returns false, without changes, if it does not apply.
  bool remove_together(std::span<const Move> moves, Rows& rows) const {
    if (moves.size() < 2 || moves.front().dst == moves.front().src) return false;
    std::vector<int32_t> regions;
    int64_t tokens = 0;
    for (const Move& move : moves) {
      regions.push_back(move.region);
      tokens += schedule_.regions[move.region].tokens.tokens();
    }
    const Ranges& set = union_of(regions);
    const Range heads = schedule_.regions[moves.front().region].heads;
    if (count(set) != tokens || !rows.covers(set, heads)) return false;
    rows.remove(set, heads);
    return true;
  }

  void hand_over(std::span<const Move> moves, Direction direction, size_t round,
                 std::map<Operand, std::vector<Rows>>& sums, std::map<Operand, Rows>& final_rows) {
    for (const Move& move : moves) {
      LONGSPAN_CHECK(
          sums.contains(move.what) && (direction == Direction::kForward) == (move.what == Operand::kO),
          "{} pass, round {}: {} is not a result of this pass", name_of(direction), round,
          name_of(move.what));
      check_region(move.region, move.what);
    }
    auto& by_rank = sums.at(moves.front().what);
    const bool removed = remove_together(moves, by_rank[static_cast<size_t>(moves.front().src)]);
    for (const Move& move : moves) {
      const Ranges& set = set_of_region(move.region);
      const Range heads = schedule_.regions[move.region].heads;
      if (!removed) {
        LONGSPAN_CHECK(by_rank[static_cast<size_t>(move.src)].covers(set, heads),
                       "{} pass, round {}: rank {} hands {} of {} to rank {}, but has not computed it",
                       name_of(direction), round, move.src, name_of(move.what),
                       describe(schedule_.regions[move.region]), move.dst);
        by_rank[static_cast<size_t>(move.src)].remove(set, heads);
      }
      if (!move.fp32) check_final(move, direction, round, by_rank, final_rows);
      Rows& rows = by_rank[static_cast<size_t>(move.dst)];
      if (!rows.covers(set, heads)) rows.add(set, heads);
    }
  }

  void check_final(const Move& move, Direction direction, size_t round, const std::vector<Rows>& by_rank,
                   std::map<Operand, Rows>& final_rows) const {
    const Ranges& set = set_of_region(move.region);
    const Range heads = schedule_.regions[move.region].heads;
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      LONGSPAN_CHECK(!by_rank[rank].touches(set, heads),
                     "{} pass, round {}: rank {} hands over {} of {} as final, but rank {} has a part of it",
                     name_of(direction), round, move.src, name_of(move.what),
                     describe(schedule_.regions[move.region]), rank);
    }
    final_rows[move.what].add(set, heads);
  }

  void check_attend(const Attend& attend, Direction direction, size_t round) const {
    const Region &q = schedule_.regions[attend.q], &kv = schedule_.regions[attend.kv];
    check_region(attend.q, Operand::kQ);
    check_region(attend.kv, Operand::kKV);
    const int64_t ratio = q.heads.size() / kv.heads.size();
    bool aligned = ratio * kv.heads.size() == q.heads.size();
    for (int64_t i = 0; aligned && i < q.heads.size(); ++i) {
      aligned = problem_.kv_head_of(q.heads.begin + i) == kv.heads.begin + i / ratio;
    }
    LONGSPAN_CHECK(aligned, "{} pass, round {}: rank {} attends query heads {}-{} to KV heads {}-{}",
                   name_of(direction), round, attend.rank, q.heads.begin, q.heads.end, kv.heads.begin,
                   kv.heads.end);
    auto require = [&](Operand what, int32_t number) {
      LONGSPAN_CHECK(holds(attend.rank, what, number),
                     "{} pass, round {}: rank {} attends with {} of {}, but does not hold it",
                     name_of(direction), round, attend.rank, name_of(what),
                     describe(schedule_.regions[number]));
    };
    require(Operand::kQ, attend.q);
    require(Operand::kKV, attend.kv);
    if (direction == Direction::kBackward) require(Operand::kDo, attend.q);
  }

  // Checks that each visible (query head, row, column) is in exactly one attend and that no pair is in two.
  void check_coverage(const std::vector<const Attend*>& attends, Direction direction) {
    // A class is a distinct set of query tokens that attends use. A segment lies between two neighbouring
    // cuts.
    std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<const Ranges*, int32_t>>> by_shape;
    std::vector<const Ranges*> classes;
    std::vector<int32_t> class_of(schedule_.regions.size(), -1);
    for (const Attend* attend : attends) {
      if (class_of[attend->q] >= 0 || set_of_region(attend->q).empty()) continue;
      const Ranges& set = set_of_region(attend->q);
      auto& alike = by_shape[{set.front().begin, set.back().end}];
      const auto same =
          std::find_if(alike.begin(), alike.end(), [&](const auto& c) { return *c.first == set; });
      if (same != alike.end()) {
        class_of[attend->q] = same->second;
        continue;
      }
      class_of[attend->q] = static_cast<int32_t>(classes.size());
      alike.push_back({&set, class_of[attend->q]});
      classes.push_back(&set);
    }
    std::vector<int64_t> cuts{0, problem_.tokens_q};
    for (const Ranges* set : classes) {
      for (Range range : *set) cuts.insert(cuts.end(), {range.begin, range.end});
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::vector<int32_t>> members(
        cuts.size());  // by segment (index of its first cut): the classes that contain it
    for (size_t c = 0; c < classes.size(); ++c) {
      for (Range range : *classes[c]) {
        for (auto at = std::lower_bound(cuts.begin(), cuts.end(), range.begin) - cuts.begin();
             cuts[static_cast<size_t>(at)] < range.end; ++at) {
          members[static_cast<size_t>(at)].push_back(static_cast<int32_t>(c));
        }
      }
    }
    std::map<std::vector<int32_t>, Ranges> atoms;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) atoms[members[i]].push_back({cuts[i], cuts[i + 1]});

    std::vector<std::vector<const Attend*>> of_class(classes.size());
    for (const Attend* attend : attends) {
      if (class_of[attend->q] >= 0) of_class[class_of[attend->q]].push_back(attend);
    }
    for (const auto& [holders, tokens] : atoms) {
      std::vector<const Attend*> here;
      for (int32_t c : holders) here.insert(here.end(), of_class[c].begin(), of_class[c].end());
      check_atom(set_of(tokens), here, direction);
    }
  }

  void check_atom(const Ranges& tokens, const std::vector<const Attend*>& attends, Direction direction) {
    std::vector<int64_t> cuts{0, problem_.heads_q};
    for (const Attend* attend : attends) {
      const Range heads = schedule_.regions[attend->q].heads;
      cuts.insert(cuts.end(), {heads.begin, heads.end});
    }
    if (problem_.masks->size() > 1) {
      for (int64_t h = 0; h < problem_.heads_q; h += problem_.group_size()) cuts.push_back(h);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

    const Ranges everything{{0, problem_.tokens_kv}};
    std::map<const Mask*, Ranges> needed_by_mask;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      Ranges keys;
      for (const Attend* attend : attends) {
        const Range heads = schedule_.regions[attend->q].heads;
        if (heads.begin <= cuts[i] && cuts[i + 1] <= heads.end) {
          keys.insert(keys.end(), set_of_region(attend->kv).begin(), set_of_region(attend->kv).end());
        }
      }
      Ranges attended;
      LONGSPAN_CHECK(union_.make(keys, attended), "{} pass: {} attend to a key twice", name_of(direction),
                     describe({tokens, {cuts[i], cuts[i + 1]}}));
      if (count(attended) == problem_.tokens_kv) continue;
      const Mask& mask = problem_.mask_of_query_head(cuts[i]);
      const auto [needed, fresh] = needed_by_mask.try_emplace(&mask);
      if (fresh) {
        Ranges columns;
        const Mask part = mask.gather(tokens, everything);
        for (const Band& band : part.bands()) columns.push_back(band.k);
        needed->second = set_of(columns);
      }
      const Ranges missed = difference(needed->second, attended);
      LONGSPAN_CHECK(missed.empty(), "{} pass: {} see key {}, which they never attend to", name_of(direction),
                     describe({tokens, {cuts[i], cuts[i + 1]}}), missed.front().begin);
    }
  }

  const Schedule& schedule_;
  const Problem& problem_;
  DisjointUnion union_;
  mutable std::map<std::vector<const void*>, Ranges> unions_;  // of lists, by their identities
  std::vector<Ranges> owned_;                                  // by rank, as sets
  std::vector<Held> held_, kept_;  // by rank: now, and kept through the backward pass
};

}  // namespace

void check(const Schedule& schedule, const Problem& problem) {
  Checker(schedule, problem).run();
}

}  // namespace longspan
