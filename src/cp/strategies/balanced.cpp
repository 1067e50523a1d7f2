// Our own strategy. It assigns chunks of the sequence to ranks so that every rank has about the same number
// of visible pairs and little KV is sent. A rank receives only the keys that its rows see.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "cp/strategies/blocks.h"
#include "cp/strategies/stages.h"
#include "cp/strategies/strategies.h"

namespace longspan {
namespace {

// The number of visible pairs of one query head that cost as much as sending one token's KV. On an H200 with
// 64:8 heads of 128, a pair takes about 5e-11 s and a token 1.4e-8 s over NVLink. Only the order of magnitude
// matters.
constexpr double kPairsPerToken = 256;

using Bits = std::vector<uint64_t>;

struct Chunk {
  Range tokens;
  double area = 0;                      // visible pairs of its rows, mean over the masks
  Bits needs;                           // chunks with a key that its rows see
  size_t first_word = 0, end_word = 0;  // of `needs`: all others are 0
};

std::vector<Chunk> cut(const Problem& problem, int64_t number) {
  std::vector<Chunk> chunks(static_cast<size_t>(number));
  const std::vector<double> until = area_until(problem);
  auto chunk_of = [&](int64_t token) {  // inverse of part_of, with its rounding corrected
    int64_t i = std::min(number - 1, token * number / problem.tokens_q);
    while (chunks[static_cast<size_t>(i)].tokens.end <= token) ++i;
    return i;
  };
  for (int64_t i = 0; i < number; ++i) {
    Chunk& chunk = chunks[static_cast<size_t>(i)];
    chunk.tokens = part_of({0, problem.tokens_q}, i, number);
    chunk.area =
        until[static_cast<size_t>(chunk.tokens.end)] - until[static_cast<size_t>(chunk.tokens.begin)];
    chunk.needs.resize(static_cast<size_t>(number + 63) / 64);
  }
  for (Chunk& chunk : chunks) {
    if (chunk.tokens.empty()) continue;
    for (Range range : needed_keys(problem, {chunk.tokens}, {0, problem.heads_kv})) {
      for (int64_t i = chunk_of(range.begin); i <= chunk_of(range.end - 1); ++i) {
        chunk.needs[static_cast<size_t>(i) / 64] |= uint64_t{1} << (i % 64);
      }
    }
    const auto not_zero = [](uint64_t word) { return word != 0; };
    const auto first = std::find_if(chunk.needs.begin(), chunk.needs.end(), not_zero);
    const auto end = std::find_if(chunk.needs.rbegin(), std::reverse_iterator(first), not_zero).base();
    chunk.first_word = static_cast<size_t>(first - chunk.needs.begin());
    chunk.end_word = static_cast<size_t>(end - chunk.needs.begin());
  }
  return chunks;
}

// Gives the same number of chunks to each rank.
class Dealer {
 public:
  Dealer(const std::vector<Chunk>& chunks, int ranks)
      : chunks_(chunks),
        tokens_per_chunk_(static_cast<double>(chunks.back().tokens.end) / static_cast<double>(chunks.size())),
        hands_(static_cast<size_t>(ranks), Hand{{}, 0, Bits(chunks.front().needs.size())}) {}

  // Chunks dealt by load; or runs of neighbours where these have the same load and receive fewer keys, as
  // with windows.
  std::vector<std::vector<int32_t>> deal() {
    constexpr double kNearlyTheSame = 1.04;
    deal_by_load();
    std::vector<Hand> runs = neighbours();
    if (most_pairs(runs) <= kNearlyTheSame * most_pairs(hands_) &&
        most_received(runs) < most_received(hands_))
      hands_ = std::move(runs);
    std::vector<std::vector<int32_t>> dealt;
    for (Hand& hand : hands_) {
      std::sort(hand.chunks.begin(), hand.chunks.end());
      dealt.push_back(hand.chunks);
    }
    return dealt;
  }

 private:
  struct Hand {
    std::vector<int32_t> chunks;
    double area;
    Bits needs;
  };

  // The heaviest chunk first, each to the rank where it costs least.
  void deal_by_load() {
    std::vector<int32_t> order(chunks_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return chunks_[a].area > chunks_[b].area; });
    const size_t full = chunks_.size() / hands_.size();
    for (int32_t chunk : order) {
      Hand* best = nullptr;
      double least = 0;
      for (Hand& hand : hands_) {
        if (hand.chunks.size() == full) continue;
        if (best != nullptr && hand.area + chunks_[chunk].area >= least)
          continue;  // its pairs alone cost more
        const double price = price_of(hand, chunk, best == nullptr ? kNoLimit : least);
        if (price < least || best == nullptr) best = &hand, least = price;
      }
      take(*best, chunk);
    }
    improve();
  }

  std::vector<Hand> neighbours() const {
    std::vector<Hand> runs(hands_.size(), Hand{{}, 0, Bits(chunks_.front().needs.size())});
    for (size_t i = 0; i < chunks_.size(); ++i)
      take(runs[i * runs.size() / chunks_.size()], static_cast<int32_t>(i));
    return runs;
  }

  void take(Hand& hand, int32_t chunk) const {
    hand.chunks.push_back(chunk);
    hand.area += chunks_[chunk].area;
    merge(hand.needs, chunks_[chunk].needs);
  }

  static double most_pairs(const std::vector<Hand>& hands) {
    double most = 0;
    for (const Hand& hand : hands) most = std::max(most, hand.area);
    return most;
  }

  // Chunks of keys that the rank with the most has to receive.
  int64_t most_received(const std::vector<Hand>& hands) const {
    int64_t most = 0;
    for (const Hand& hand : hands) {
      Bits foreign(chunks_.front().needs.size());
      for (const int32_t chunk : hand.chunks) merge(foreign, chunks_[chunk].needs);
      for (const int32_t chunk : hand.chunks)
        foreign[static_cast<size_t>(chunk) / 64] &= ~(uint64_t{1} << (chunk % 64));
      int64_t received = 0;
      for (const uint64_t word : foreign) received += ones(word);
      most = std::max(most, received);
    }
    return most;
  }

  static void merge(Bits& to, const Bits& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
  }

  // Builds for any x86-64 call a function for std::popcount.
  static int64_t ones(uint64_t bits) {
    if (bits == 0) return 0;
    bits -= bits >> 1 & 0x5555555555555555;
    bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return static_cast<int64_t>(bits * 0x0101010101010101 >> 56);
  }

  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // The cost of a hand with one more chunk: its pairs, and the KV that the chunk adds to receive. Counting
  // ends when the cost reaches the limit.
  double price_of(const Hand& hand, int32_t chunk, double limit) const {
    const Chunk& added = chunks_[chunk];
    const double pairs = hand.area + added.area, each = kPairsPerToken * tokens_per_chunk_;
    const double most = (limit - pairs) / each;
    int64_t more = 0;
    for (size_t i = added.first_word; i < added.end_word && static_cast<double>(more) <= most; ++i)
      more += ones(added.needs[i] & ~hand.needs[i]);
    return pairs + each * static_cast<double>(more);
  }

  // Swaps a chunk of the most loaded hand for a lighter one of another hand, as long as this lowers the
  // larger load of the two.
  void improve() {
    for (size_t step = 0; step < chunks_.size(); ++step) {
      Hand& most = *std::max_element(hands_.begin(), hands_.end(),
                                     [](const Hand& a, const Hand& b) { return a.area < b.area; });
      Hand* partner = nullptr;
      size_t given = 0, taken = 0;
      double least = most.area * (1 - 1e-9);
      for (Hand& hand : hands_) {
        // After any swap the larger load of the two is at least their mean.
        if (&hand == &most || (most.area + hand.area) / 2 >= least) continue;
        for (size_t i = 0; i < most.chunks.size(); ++i) {
          for (size_t j = 0; j < hand.chunks.size(); ++j) {
            const double moved = chunks_[most.chunks[i]].area - chunks_[hand.chunks[j]].area;
            const double larger = std::max(most.area - moved, hand.area + moved);
            if (larger < least) partner = &hand, given = i, taken = j, least = larger;
          }
        }
      }
      if (partner == nullptr) return;
      const double moved = chunks_[most.chunks[given]].area - chunks_[partner->chunks[taken]].area;
      std::swap(most.chunks[given], partner->chunks[taken]);
      most.area -= moved;
      partner->area += moved;
    }
  }

  const std::vector<Chunk>& chunks_;
  const double tokens_per_chunk_;
  std::vector<Hand> hands_;
};

std::vector<Ranges> shard_balanced(const Problem& problem, int ranks) {
  // More chunks balance better; fewer keep tiles and messages large. 8 per rank, of at least 64 tokens each.
  const int64_t per_rank = std::clamp<int64_t>(problem.tokens_q / ranks / 64, 1, 8);
  const std::vector<Chunk> chunks = cut(problem, per_rank * ranks);
  std::vector<Ranges> owned;
  for (const auto& hand : Dealer(chunks, ranks).deal()) {
    std::vector<Range> ranges;
    ranges.reserve(hand.size());
    for (int32_t chunk : hand) ranges.push_back(chunks[static_cast<size_t>(chunk)].tokens);
    owned.push_back(set_of(ranges));
  }
  return owned;
}

constexpr OptionSpec kOptions[] = {kSharding, kSkip};

Support supports(const Problem&, const Topology&, const StrategyOptions& options) {
  const auto sharding = options.choice<Sharding>(kSharding);
  if (sharding != Sharding::kAuto)
    return {fmt::format("assigns chunks by their load: sharding must be auto, not {}", name_of(sharding))};
  return {};
}

// Cuts a set where rows of the mask's bands begin and end, so all rows of a piece see nearly the same keys.
Ranges cut_at_bands(const Problem& problem, const Ranges& set) {
  constexpr size_t kMostBands = 1 << 14;  // cutting does not help for block-sparse masks
  std::vector<int64_t> edges;
  for (const Mask& mask : *problem.masks) {
    if (mask.bands().size() > kMostBands) return set;
    for (const Band& band : mask.bands()) {
      edges.push_back(band.q.begin);
      edges.push_back(band.q.end);
    }
  }
  std::sort(edges.begin(), edges.end());
  Ranges pieces;
  for (Range rest : set) {
    for (auto edge = std::upper_bound(edges.begin(), edges.end(), rest.begin);
         edge != edges.end() && *edge < rest.end; ++edge) {
      if (*edge == rest.begin) continue;
      pieces.push_back({rest.begin, *edge});
      rest.begin = *edge;
    }
    pieces.push_back(rest);
  }
  return pieces;
}

// A rough estimate for an H200; `area` counts the pairs of one query head.
double attend_time_s(const Problem& problem, double area, Direction direction) {
  const int64_t dims = direction == Direction::kForward ? problem.head_dim + problem.dim_v()
                                                        : 3 * problem.head_dim + 2 * problem.dim_v();
  const double flops_per_s = direction == Direction::kForward ? 6e14 : 4.5e14;
  return 2 * area * static_cast<double>(problem.heads_q * dims) / flops_per_s;
}

// The work of one rank. Rows that see only the rank's own keys come first.
struct Share {
  Ranges local, others;                         // rows that see only own keys, and all other rows
  std::vector<std::pair<int, Ranges>> foreign;  // visible keys of other ranks, by source
  double area = 0, local_area = 0;              // pairs of one query head
  int64_t within_node = 0, between_nodes = 0;   // tokens of `foreign`

  Ranges owned() const {
    Ranges all = local;
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }
  int64_t foreign_tokens() const { return within_node + between_nodes; }
};

// The ranks' tokens in sequence order, to find who owns the keys that a rank needs.
class Owners {
 public:
  explicit Owners(const std::vector<Ranges>& sets) : ranks_(sets.size()), needed_(sets.size()) {
    for (size_t rank = 0; rank < sets.size(); ++rank) {
      for (const Range& range : sets[rank]) pieces_.push_back({range, rank});
    }
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.range.begin < b.range.begin; });
  }

  // Calls visit(rank, tokens) for each rank but `rank` itself that owns some of `needed`, from the next one
  // on.
  template <class Visit>
  void for_each_other(size_t rank, const Ranges& needed, Visit visit) {
    std::vector<size_t> steps;
    for (const Range& range : needed) {
      auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), range.begin,
                                    [](const Piece& p, int64_t begin) { return p.range.end <= begin; });
      for (; piece != pieces_.end() && piece->range.begin < range.end; ++piece) {
        if (piece->owner == rank) continue;
        Ranges& tokens = needed_[piece->owner];
        if (tokens.empty()) steps.push_back((piece->owner + ranks_ - rank) % ranks_);
        append(tokens, {std::max(range.begin, piece->range.begin), std::min(range.end, piece->range.end)});
      }
    }
    std::sort(steps.begin(), steps.end());
    for (const size_t step : steps) {
      Ranges& tokens = needed_[(rank + step) % ranks_];
      visit((rank + step) % ranks_, tokens);
      tokens.clear();
    }
  }

 private:
  struct Piece {
    Range range;
    size_t owner;
  };
  size_t ranks_;
  std::vector<Piece> pieces_;
  std::vector<Ranges> needed_;  // by owner; empty between calls
};

std::vector<Share> shares_of(const Problem& problem, const Topology& topology, bool skip_unneeded,
                             std::span<const Ranges> owned) {
  const Range kv_heads{0, problem.heads_kv};
  const auto area_of_rows = [&](const Ranges& rows) {
    return static_cast<double>(problem.masks->front().gather(rows, Ranges{{0, problem.tokens_kv}}).area());
  };
  std::vector<Ranges> sets;
  if (owned.empty()) sets = shard_balanced(problem, topology.ranks());
  for (const Ranges& list : owned) sets.push_back(set_of(list));
  std::vector<Share> shares(sets.size());
  for (size_t rank = 0; rank < sets.size(); ++rank) {
    Share& share = shares[rank];
    if (skip_unneeded) {
      for (const Range& piece : cut_at_bands(problem, sets[rank])) {
        const bool local = includes(sets[rank], needed_keys(problem, {piece}, kv_heads));
        (local ? share.local : share.others).push_back(piece);
      }
    }
    share.local = set_of(share.local);
    share.local_area = area_of_rows(share.local);
    share.area = share.local_area;
    share.others = difference(sets[rank], share.local);
    if (!share.others.empty()) share.area += area_of_rows(share.others);
  }
  std::vector<Ranges> lists;  // in the order in which ranks keep their tokens
  lists.reserve(shares.size());
  for (const Share& share : shares) lists.push_back(share.owned());
  Owners owners(sets);
  for (size_t rank = 0; rank < sets.size(); ++rank) {
    Share& share = shares[rank];
    if (sets[rank].empty()) continue;
    const Ranges needed =
        skip_unneeded ? needed_keys(problem, sets[rank], kv_heads) : Ranges{{0, problem.tokens_kv}};
    owners.for_each_other(rank, needed, [&](size_t source, const Ranges& set) {
      const bool near =
          topology.node_of(static_cast<int>(source)) == topology.node_of(static_cast<int>(rank));
      (near ? share.within_node : share.between_nodes) += count(set);
      share.foreign.emplace_back(static_cast<int>(source), select(lists[source], set));
    });
  }
  return shares;
}

double travel_time_s(const Problem& problem, const Share& share) {
  constexpr double kWithinNode = 2.9e11, kBetweenNodes = 4e10;  // bytes/s between H200s
  const double key_bytes = static_cast<double>(problem.heads_kv * (problem.head_dim + problem.dim_v())) *
                           static_cast<double>(size_of(problem.dtype));
  return key_bytes * (static_cast<double>(share.within_node) / kWithinNode +
                      static_cast<double>(share.between_nodes) / kBetweenNodes);
}

// The tokens of `list` that are in `set`, grouped into stretches that are contiguous in the list's packed
// order.
std::vector<Ranges> together(const Ranges& list, const Ranges& set) {
  std::vector<Ranges> stretches;
  int64_t position = 0, end = -1;
  for (const Range& range : list) {
    for (const Range& part : select(Ranges{range}, set)) {
      const int64_t at = position + part.begin - range.begin;
      if (at != end) stretches.emplace_back();
      stretches.back().push_back(part);
      end = at + part.size();
    }
    position += range.size();
  }
  return stretches;
}

constexpr size_t kMostRanges = 16;  // the most ranges that a rank receives as separate messages

size_t ranges_in(const std::vector<std::pair<int, Ranges>>& foreign) {
  size_t ranges = 0;
  for (const auto& [source, tokens] : foreign) ranges += tokens.size();
  return ranges;
}

// The rounds of the two passes.
struct PassRounds {
  bool by_rows = false;  // forward starts with a separate round of the rows that see only own keys
  std::vector<Range> forward, backward;  // groups of KV heads of the other rounds, in order
};

// Keys of other ranks are kept for the backward pass if they take no more memory than the rank's own q, k and
// v.
bool keeps(const Problem& problem, const Share& share, int64_t owned) {
  return 2 * problem.heads_kv * share.foreign_tokens() <= (problem.heads_q + 2 * problem.heads_kv) * owned;
}

PassRounds rounds_of(const Problem& problem, const std::vector<Share>& shares) {
  // A separate round for local rows adds a launch and splits tiles that they would share with other rows.
  constexpr double kWorthARound_s = 3e-4;
  PassEstimate forward, backward;
  double local_s = -1;  // least local work of any rank that waits for keys; -1: none waits
  for (const Share& share : shares) {
    const double travel_s = travel_time_s(problem, share);
    forward.attend_s = std::max(forward.attend_s, attend_time_s(problem, share.area, Direction::kForward));
    backward.attend_s = std::max(backward.attend_s, attend_time_s(problem, share.area, Direction::kBackward));
    forward.arrive_s = std::max(forward.arrive_s, travel_s);
    if (!keeps(problem, share, count(share.owned())))
      backward.arrive_s = std::max(backward.arrive_s, travel_s);
    const double fp32 = 4 / static_cast<double>(size_of(problem.dtype));  // gradients return in fp32
    backward.leave_s = std::max(backward.leave_s, fp32 * travel_s);
    if (share.foreign.empty()) continue;
    const double here_s = attend_time_s(problem, share.local_area, Direction::kForward);
    local_s = local_s < 0 ? here_s : std::min(local_s, here_s);
  }
  PassRounds rounds;
  rounds.forward = stages_of(problem.heads_kv, forward);
  rounds.backward = stages_of(problem.heads_kv, backward, rounds.forward);
  const double waits_s = forward.arrive_s * static_cast<double>(rounds.forward.front().size()) /
                         static_cast<double>(problem.heads_kv);
  rounds.by_rows = std::min(waits_s, local_s) > kWorthARound_s;
  return rounds;
}

// Keys and gradients of one group of heads are sent while another group attends. All rows of a rank attend in
// each stage, so rows and tiles are the same in every stage.
Schedule schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                  std::span<const Ranges> owned_by_rank) {
  const Range kv_heads{0, problem.heads_kv};
  const int64_t group = problem.heads_q / problem.heads_kv;
  std::vector<Share> shares = shares_of(problem, topology, options.flag(kSkip), owned_by_rank);
  PassRounds rounds = rounds_of(problem, shares);
  // Rows that see only own keys must come first to attend in a round of their own.
  if (!std::equal(owned_by_rank.begin(), owned_by_rank.end(), shares.begin(),
                  [](const Ranges& given, const Share& share) { return given == share.owned(); }))
    rounds.by_rows = false;
  const size_t first = rounds.by_rows ? 1 : 0;  // round of the first group of heads
  Schedule schedule;
  schedule.strategy = "balanced";
  schedule.ranks = topology.ranks();
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    Share& share = shares[rank];
    if (!rounds.by_rows) {
      share.others = owned_by_rank.empty() ? set_of(share.owned()) : owned_by_rank[rank];
      share.local.clear();
    }
    schedule.owned.push_back(share.owned());
  }
  schedule.forward.resize(first + rounds.forward.size());
  schedule.backward.resize(rounds.backward.size());
  size_t pieces = 0;  // at least the number of messages of a stage
  for (const Share& share : shares) pieces += ranges_in(share.foreign);
  const size_t passes = rounds.forward.size() + rounds.backward.size();
  schedule.regions.reserve((pieces + 4 * shares.size()) * passes);
  for (size_t stage = first; stage < schedule.forward.size(); ++stage)
    schedule.forward[stage].in.reserve(pieces);
  for (Round& round : schedule.backward) round.out.reserve(pieces);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const Share& share = shares[static_cast<size_t>(rank)];
    const TokenList owned(schedule.owned[static_cast<size_t>(rank)]), others(share.others);
    if (owned.empty()) continue;
    const auto attend = [&](Round& round, const TokenList& rows, const TokenList& keys, Range heads) {
      const int32_t q = schedule.add_region({rows, {heads.begin * group, heads.end * group}});
      round.attend.push_back({rank, q, schedule.add_region({keys, heads})});
    };
    // Attend to all own keys, not only the needed ones, so no row has to be packed.
    if (share.foreign.empty()) {
      attend(schedule.forward.front(), owned, owned, kv_heads);
      attend(schedule.backward.front(), owned, owned, kv_heads);
      continue;
    }
    if (!share.local.empty()) attend(schedule.forward.front(), share.local, owned, kv_heads);
    const bool keep = keeps(problem, share, count(owned));
    Ranges list = owned;                           // of all keys
    std::vector<std::pair<int, TokenList>> parts;  // keys of other ranks, by source
    // In sequence order, a document's keys are contiguous whatever rank they come from. If that takes too
    // many messages, keys are ordered by source, so that received data can still be read in place.
    const bool in_order = ranges_in(share.foreign) <= kMostRanges;
    for (const auto& [source, tokens] : share.foreign) {
      for (Ranges& stretch : together(schedule.owned[static_cast<size_t>(source)], set_of(tokens))) {
        list.insert(list.end(), stretch.begin(), stretch.end());
        if (in_order) {
          for (const Range& range : stretch) parts.emplace_back(source, TokenList{range});
        } else {
          parts.emplace_back(source, std::move(stretch));
        }
      }
    }
    const TokenList keys(in_order ? set_of(list) : std::move(list));
    for (size_t stage = 0; stage < rounds.forward.size(); ++stage) {
      const Range heads = rounds.forward[stage];
      Round& round = schedule.forward[first + stage];
      for (const auto& [source, tokens] : parts)
        round.in.push_back({Operand::kKV, keep, false, source, rank, schedule.add_region({tokens, heads})});
      attend(round, others, keys, heads);
    }
    for (size_t stage = 0; stage < rounds.backward.size(); ++stage) {
      const Range heads = rounds.backward[stage];
      Round& round = schedule.backward[stage];
      for (const auto& [source, tokens] : parts) {
        const int32_t region = schedule.add_region({tokens, heads});
        if (!keep) round.in.push_back({Operand::kKV, false, false, source, rank, region});
        round.out.push_back({Operand::kDkv, false, true, rank, source, region});
      }
      attend(round, owned, keys, heads);
    }
  }
  return schedule;
}

StrategyOptions resolve(const Problem&, const Topology& topology, StrategyOptions options) {
  return with_layout(std::move(options), 1, topology.ranks(), Sharding::kAuto);
}

}  // namespace

const Strategy kBalanced{
    "balanced", "chunks assigned for equal load; only needed KV is sent, overlapped with attention",
    1,          kOptions,
    supports,   schedule,
    resolve};

}  // namespace longspan
