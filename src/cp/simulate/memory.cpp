#include "cp/simulate/memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "cp/execute/pieces.h"
#include "cp/execute/placement.h"

namespace longspan::simulate {
namespace {

// Gives out buffers as BufferPool does: the smallest free one that is large enough and not far too large.
class Sizes {
 public:
  size_t take(size_t bytes, size_t room = 0) {
    size_t size = std::max(bytes, room);
    const auto fit = free_.lower_bound(bytes);
    if (fit != free_.end() && *fit <= size + size / 2) {
      size = *fit;
      free_.erase(fit);
    } else {
      held_ += size;
    }
    used_ += size;
    most_used_ = std::max(most_used_, used_);
    return size;
  }
  void give_back(size_t size) {
    if (size == 0) return;
    free_.insert(size);
    used_ -= size;
  }
  void give_back(std::vector<size_t>& sizes) {
    for (const size_t size : sizes) give_back(size);
    sizes.clear();
  }
  size_t held() const { return held_; }
  // The most that was in use since the last call.
  size_t most_used() { return std::exchange(most_used_, used_); }

 private:
  std::multiset<size_t> free_;
  size_t held_ = 0, used_ = 0, most_used_ = 0;
};

class Passes {
 public:
  // `keeps`: a backward pass will follow.
  Passes(const Schedule& schedule, const Problem& problem, int rank, bool takes_rows, bool merges_parts,
         bool keeps)
      : schedule_(schedule),
        problem_(problem),
        owned_(schedule.owned[static_cast<size_t>(rank)]),
        takes_rows_(takes_rows),
        merges_parts_(merges_parts),
        keeps_(keeps) {}

  int64_t held() const { return static_cast<int64_t>(pool_.held() + kept_.bytes); }
  std::vector<int64_t> by_round() const { return by_round_; }

  void run(Direction direction, std::vector<RankRound> rounds) {
    forward_ = direction == Direction::kForward;
    rounds_ = std::move(rounds);
    by_round_.clear();
    const std::vector<int32_t> last_uses = longspan::last_uses(schedule_, rounds_);
    results_ = longspan::results_of(schedule_, direction, rounds_);
    in_place_ = results_in_place(schedule_, rounds_, owned_);
    landings_.clear();
    for (const RankRound& round : rounds_) landings_.push_back(landings_of(schedule_, round, owned_));
    rooms_ = rooms_of(schedule_, problem_, direction, rounds_, landings_, results_);
    if (forward_ && keeps_) kept_ = kept_of(schedule_, problem_, rounds_, landings_);
    copies_ = 0;
    Posted next = post_copies(0, last_uses), results;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      Posted now = std::move(next);
      pool_.give_back(now.leaving);
      for (Copy& copy : now.arriving) held_.push_back(copy);
      drop_before(static_cast<int32_t>(i));
      next = i + 1 < rounds_.size() ? post_copies(i + 1, last_uses) : Posted();
      for (size_t a = 0; a < rounds_[i].attend.size(); ++a) attend(i, a);
      collect(results);
      results = post_results(i);
      by_round_.push_back(static_cast<int64_t>(pool_.most_used() + kept_.bytes));
    }
    collect(results);
    drop_before(static_cast<int32_t>(rounds_.size()));  // keeps what the backward pass reads
    for (const auto& [region, part] : parts_) pool_.give_back(part.size);
    parts_.clear();
    pool_.most_used();
  }

 private:
  struct Copy {
    size_t size;
    int32_t last_use;
    Operand what;
    int32_t region;
  };
  struct Posted {
    std::vector<size_t> leaving;
    std::vector<Copy> arriving;
    std::vector<std::pair<size_t, Move>> results;  // that arrive, with their buffers
  };

  size_t bytes(Operand what, int32_t number, bool fp32) const {
    const Region& region = schedule_.regions[number];
    return piece_bytes({what, fp32 ? DType::kF32 : problem_.dtype, problem_}, count(region.tokens),
                       region.heads);
  }

  void drop_before(int32_t round) {
    std::erase_if(held_, [&](const Copy& copy) {
      if (copy.last_use >= round) return false;
      pool_.give_back(copy.size);
      return true;
    });
  }

  bool lies_together(const Move& move) const {
    const Region& region = schedule_.regions[move.region];
    const bool keys = move.what == Operand::kKV;
    if (!takes_rows_ && region.heads.size() != (keys ? problem_.heads_kv : problem_.heads_q)) return false;
    if (position_of(region.tokens, owned_) >= 0) return true;
    return std::any_of(held_.begin(), held_.end(), [&](const Copy& copy) {
      return copy.what == move.what && position_of(region.tokens, schedule_.regions[copy.region].tokens) >= 0;
    });
  }

  Posted post_copies(size_t i, const std::vector<int32_t>& last_uses) {
    Posted posted;
    const RankRound& round = rounds_[i];
    bool together = false;
    for (size_t m = 0; m < round.copies_out.size(); ++m) {
      const Move& move = round.copies_out[m];
      const Move* before = m > 0 ? &round.copies_out[m - 1] : nullptr;  // many moves send the same region
      if (before == nullptr || before->region != move.region || before->what != move.what)
        together = lies_together(move);
      if (!together)
        posted.leaving.push_back(pool_.take(bytes(move.what, move.region, false), rooms_[i].copies_out[m]));
    }
    const auto total = static_cast<int32_t>(rounds_.size());
    const auto last_use = [&](size_t copy) {
      const int32_t last = last_uses[copies_ + copy];
      return last < total ? last : total;
    };
    std::vector<bool> landed(round.copies_in.size());
    for (const Landing& landing : landings_[i]) {
      int32_t last = 0;
      for (const Landing::Arrival& arrival : landing.arrivals) {
        landed[arrival.move] = true;
        last = std::max(last, last_use(arrival.move));
      }
      add_arriving(posted, i, landing.what, landing.region, last);
    }
    for (size_t m = 0; m < round.copies_in.size(); ++m) {
      const Move& move = round.copies_in[m];
      if (!landed[m]) add_arriving(posted, i, move.what, move.region, last_use(m));
    }
    copies_ += round.copies_in.size();
    return posted;
  }

  void add_arriving(Posted& posted, size_t i, Operand what, int32_t region, int32_t last_use) {
    const size_t index = posted.arriving.size();
    const bool in_kept = forward_ && keeps_ && kept_.arriving[i][index] >= 0;
    const size_t size = in_kept ? 0 : pool_.take(bytes(what, region, false), rooms_[i].arriving[index]);
    posted.arriving.push_back({size, last_use, what, region});
  }

  // Whether a complete result of these rows is written to the rank's own tensor.
  bool in_own(int32_t region) const { return position_of(schedule_.regions[region].tokens, owned_) >= 0; }

  // The buffer of an attend's result: none for o that is kept where it is written.
  size_t take_result(Operand what, int32_t region, bool complete, size_t room) {
    if (complete && what == Operand::kO && kept_.of_rows(region) != nullptr) return 0;
    return pool_.take(bytes(what, region, !complete), complete ? 0 : room);
  }

  void attend(size_t i, size_t number) {
    const Attend& attend = rounds_[i].attend[number];
    const Results& results = results_[i][number];
    if (!forward_) {
      add_part(Operand::kDq, attend.q, results.rows.alone(), rooms_[i].rows[number]);
      add_part(Operand::kDkv, attend.kv, results.keys.alone(), rooms_[i].keys[number]);
      return;
    }
    const auto before = parts_.find({Operand::kO, attend.q});
    const bool has_part = before != parts_.end();
    if (!merges_parts_) {
      add_part(Operand::kO, attend.q, results.rows.alone(), rooms_[i].rows[number]);
      return;
    }
    const bool completes = results.rows.complete && results.rows.last && (results.rows.first || has_part);
    if (has_part && !completes) return;  // merged in place
    const size_t part = has_part ? before->second.size : 0;
    if (has_part) parts_.erase(before);
    if (!completes || !in_own(attend.q)) {
      const size_t size = take_result(Operand::kO, attend.q, completes, rooms_[i].rows[number]);
      parts_[{Operand::kO, attend.q}] = {size, !completes};
    } else if (schedule_.regions[attend.q].tokens != owned_) {  // a packed lse, for the kernel
      const Region& region = schedule_.regions[attend.q];
      pool_.give_back(pool_.take(
          piece_bytes({Operand::kQ, DType::kF32, {1, 0}, false}, count(region.tokens), region.heads)));
    }
    pool_.give_back(part);
  }

  // A new partial result: the first one is kept, others are added to it and freed.
  void add_part(Operand what, int32_t region, bool complete, size_t room) {
    if (complete && in_own(region)) return;
    const size_t size = take_result(what, region, complete, room);
    if (!parts_.try_emplace({what, region}, Part{size, !complete}).second) pool_.give_back(size);
  }

  void collect(Posted& results) {
    pool_.give_back(results.leaving);
    for (const auto& [size, move] : results.results) {
      if (move.fp32 && !has_sum(move)) {
        parts_[{move.what, move.region}] = {size, true};  // the first part of these rows
      } else {
        pool_.give_back(size);
      }
    }
    results.results.clear();
  }

  // Whether there is a part with all rows and heads of a result that arrives, to which it is added.
  bool has_sum(const Move& move) const {
    const Region& region = schedule_.regions[move.region];
    return std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) {
      const auto& [what, number] = part.first;
      const Region& sum = schedule_.regions[number];
      return what == move.what && inside(region.heads, sum.heads) &&
             includes(sum.tokens.set(), region.tokens.set());
    });
  }

  Posted post_results(size_t i) {
    Posted posted;
    const RankRound& round = rounds_[i];
    for (size_t m = 0; m < round.given.size(); ++m) give(posted, round.given[m], rooms_[i].given[m]);
    for (size_t m = 0; m < round.taken.size(); ++m) {
      const Move& move = round.taken[m];
      if (takes_rows_ && in_place_[i][m]) continue;
      posted.results.emplace_back(pool_.take(bytes(move.what, move.region, move.fp32), rooms_[i].taken[m]),
                                  move);
    }
    return posted;
  }

  // A result leaves as it lies if one part holds its rows together, in its dtype. Else it is made of all
  // parts that have any of its rows, and these are freed if nothing is left of them.
  void give(Posted& posted, const Move& move, size_t room) {
    const Region& region = schedule_.regions[move.region];
    const Ranges set = region.tokens.set();
    std::vector<Parts::iterator> parts;
    for (auto part = parts_.begin(); part != parts_.end(); ++part) {
      const Region& other = schedule_.regions[part->first.second];
      const bool share_heads = other.heads.begin < region.heads.end && region.heads.begin < other.heads.end;
      if (part->first.first == move.what && share_heads && overlap(other.tokens.set(), set))
        parts.push_back(part);
    }
    if (parts.empty()) return;  // it lies in the rank's own tensor, or among the saved ones
    const Region& first = schedule_.regions[parts.front()->first.second];
    if (parts.size() == 1 && first.heads == region.heads && parts.front()->second.fp32 == move.fp32 &&
        position_of(region.tokens, first.tokens) >= 0) {
      if (count(region.tokens) < count(first.tokens)) return;  // a view: the part stays
      posted.leaving.push_back(parts.front()->second.size);
      parts_.erase(parts.front());
      return;
    }
    posted.leaving.push_back(pool_.take(bytes(move.what, move.region, move.fp32), room));
    for (const auto& part : parts) {
      const Region& other = schedule_.regions[part->first.second];
      if (!inside(other.heads, region.heads) || !includes(set, other.tokens.set())) continue;
      pool_.give_back(part->second.size);
      parts_.erase(part);
    }
  }

  const Schedule& schedule_;
  const Problem& problem_;
  const Ranges& owned_;
  const bool takes_rows_, merges_parts_, keeps_;
  Sizes pool_;
  bool forward_ = true;
  std::vector<RankRound> rounds_;
  std::vector<int64_t> by_round_;  // the most that is in use
  std::vector<std::vector<Results>> results_;
  std::vector<std::vector<bool>> in_place_;
  std::vector<std::vector<Landing>> landings_;
  std::vector<Rooms> rooms_;
  size_t copies_ = 0;       // that arrived so far in this pass
  std::vector<Copy> held_;  // copies of other ranks' operands
  struct Part {
    size_t size;
    bool fp32;
  };
  using Parts = std::map<std::pair<Operand, int32_t>, Part>;
  Parts parts_;  // results that lie in buffers, by operand and region; size 0: where they are kept
  Kept kept_;
};

}  // namespace

std::vector<MemoryUse> memory_by_rank(const Schedule& schedule, const Problem& problem, Direction until,
                                      bool takes_rows, bool merges_parts) {
  const bool backward = until == Direction::kBackward;
  auto forward_rounds = rounds_by_rank(schedule, Direction::kForward);
  auto backward_rounds =
      backward ? rounds_by_rank(schedule, Direction::kBackward) : decltype(forward_rounds)();
  std::vector<MemoryUse> use(static_cast<size_t>(schedule.ranks));
  parallel_for(schedule.ranks, [&](int64_t rank, int) {
    const auto at = static_cast<size_t>(rank);
    Passes passes(schedule, problem, static_cast<int>(rank), takes_rows, merges_parts, backward);
    passes.run(Direction::kForward, std::move(forward_rounds[at]));
    if (backward) passes.run(Direction::kBackward, std::move(backward_rounds[at]));
    use[at] = {passes.held(), passes.by_round()};
  });
  return use;
}

}  // namespace longspan::simulate
