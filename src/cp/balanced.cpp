// Our own strategy: chunks of the sequence dealt to ranks so that each attends to equally many pairs and
// little KV travels; a rank is sent just the keys that its rows see.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "cp/blocks.h"
#include "cp/strategies.h"

namespace longspan {
namespace {

// How many visible pairs of one query head weigh as much as the travel of one token's KV: on an H200 with
// 64:8 heads of 128, some 5e-11 s against 1.4e-8 s over NVLink. Only the order of magnitude matters.
constexpr double kPairsPerToken = 256;

using Bits = std::vector<uint64_t>;

struct Chunk {
  Range tokens;
  double area = 0;  // visible pairs of its rows, mean over the masks
  Bits needs;       // chunks that its rows see a key of
};

std::vector<Chunk> cut(const Problem& problem, int64_t number) {
  std::vector<Chunk> chunks(static_cast<size_t>(number));
  std::vector<double> until(static_cast<size_t>(problem.tokens_q) + 1);  // area of the rows before each row
  for (const Mask& mask : *problem.masks) {
    double sum = 0;
    const std::vector<int64_t> counts = mask.visible_counts();
    for (size_t row = 0; row < counts.size(); ++row) {
      sum += static_cast<double>(counts[row]) / static_cast<double>(problem.masks->size());
      until[row + 1] += sum;
    }
  }
  auto chunk_of = [&](int64_t token) {  // part_of's inverse, up to its rounding
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
  }
  return chunks;
}

// Deals chunks to ranks, equally many to each.
class Dealer {
 public:
  Dealer(const std::vector<Chunk>& chunks, int ranks)
      : chunks_(chunks),
        tokens_per_chunk_(static_cast<double>(chunks.back().tokens.end) / static_cast<double>(chunks.size())),
        hands_(static_cast<size_t>(ranks), Hand{{}, 0, Bits(chunks.front().needs.size())}) {}

  std::vector<std::vector<int32_t>> deal() {
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
        const double price = price_of(hand, chunk);
        if (best == nullptr || price < least) best = &hand, least = price;
      }
      best->chunks.push_back(chunk);
      best->area += chunks_[chunk].area;
      merge(best->needs, chunks_[chunk].needs);
    }
    improve();
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

  static void merge(Bits& to, const Bits& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] |= from[i];
  }

  // What a hand costs with one chunk more: its pairs, and the travel that the chunk adds.
  double price_of(const Hand& hand, int32_t chunk) const {
    int64_t more = 0;
    for (size_t i = 0; i < hand.needs.size(); ++i) {
      more += __builtin_popcountll(chunks_[chunk].needs[i] & ~hand.needs[i]);
    }
    return hand.area + chunks_[chunk].area + kPairsPerToken * tokens_per_chunk_ * static_cast<double>(more);
  }

  // Swaps a chunk of the most loaded hand for a lighter one of another hand while that lowers the larger of
  // the two.
  void improve() {
    for (size_t step = 0; step < chunks_.size(); ++step) {
      Hand& most = *std::max_element(hands_.begin(), hands_.end(),
                                     [](const Hand& a, const Hand& b) { return a.area < b.area; });
      Hand* partner = nullptr;
      size_t given = 0, taken = 0;
      double least = most.area * (1 - 1e-9);
      for (Hand& hand : hands_) {
        if (&hand == &most) continue;
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
  // More chunks balance better, fewer keep tiles and messages large: 8 a rank, of 64 tokens at least, fewer
  // for thousands of ranks, whose dealing would take long.
  int64_t per_rank = std::clamp<int64_t>(problem.tokens_q / ranks / 64, 1, 8);
  if (ranks > 256) per_rank = std::min<int64_t>(per_rank, 4);
  const std::vector<Chunk> chunks = cut(problem, per_rank * ranks);
  std::vector<Ranges> owned;
  for (const auto& hand : Dealer(chunks, ranks).deal()) {
    std::vector<Range> ranges;
    for (int32_t chunk : hand) ranges.push_back(chunks[static_cast<size_t>(chunk)].tokens);
    owned.push_back(set_of(ranges));
  }
  return owned;
}

Support supports(const Problem&, const Topology&, const StrategyOptions& options) {
  if (options.sharding != Sharding::kAuto) {
    return {
        fmt::format("deals chunks by their load: sharding must be auto, not {}", name_of(options.sharding))};
  }
  return {};
}

// The keys of others that a rank's rows see, by source.
struct Foreign {
  std::vector<std::pair<int, Ranges>> by_source;
  int64_t within_node = 0, between_nodes = 0;  // tokens
};

Foreign foreign_keys(const std::vector<Ranges>& sets, const Ranges& needed, int rank,
                     const Topology& topology) {
  Foreign foreign;
  const int ranks = static_cast<int>(sets.size());
  for (int step = 1; step < ranks; ++step) {
    const int source = (rank + step) % ranks;
    const Ranges tokens = intersection(sets[static_cast<size_t>(source)], needed);
    if (tokens.empty()) continue;
    (topology.node_of(source) == topology.node_of(rank) ? foreign.within_node : foreign.between_nodes) +=
        count(tokens);
    foreign.by_source.emplace_back(source, tokens);
  }
  return foreign;
}

// To attend to one's own keys first hides the travel of the others', but makes a second part of every row, in
// fp32, which is to be written, merged with the first and converted: some 24 bytes an element. It pays where
// travel takes longer than that.
bool travel_is_worth_hiding(const Problem& problem, const Foreign& foreign, int64_t own_tokens) {
  constexpr double kMemory = 3.5e12, kWithinNode = 3e11, kBetweenNodes = 4e10;  // bytes/s, of an H200
  constexpr double kBytesOfParts = 24;
  const auto head_dim = static_cast<double>(problem.head_dim);
  const double key_bytes =
      2 * static_cast<double>(problem.heads_kv) * head_dim * static_cast<double>(size_of(problem.dtype));
  const double travel_s = key_bytes * (static_cast<double>(foreign.within_node) / kWithinNode +
                                       static_cast<double>(foreign.between_nodes) / kBetweenNodes);
  const double parts_s =
      kBytesOfParts * static_cast<double>(own_tokens * problem.heads_q) * head_dim / kMemory;
  return travel_s > parts_s;
}

// Where travel is worth hiding, each rank attends to its own keys in round 0, while what it needs of the
// others' arrives, and to that in round 1. Else it attends to all of them at once, when they have come.
Schedule schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options) {
  const int ranks = topology.ranks();
  const Range kv_heads{0, problem.heads_kv}, q_heads{0, problem.heads_q};
  Schedule schedule;
  schedule.strategy = "balanced";
  schedule.ranks = ranks;
  schedule.owned = shard_balanced(problem, ranks);
  std::vector<Ranges> sets;
  for (const Ranges& owned : schedule.owned) sets.push_back(set_of(owned));
  std::vector<Ranges> needed(sets.size());
  std::vector<Foreign> foreign(sets.size());
  bool hide = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (sets[r].empty()) continue;
    needed[r] = options.skip_unneeded ? needed_keys(problem, schedule.owned[r], kv_heads)
                                      : Ranges{{0, problem.tokens_kv}};
    foreign[r] = foreign_keys(sets, needed[r], rank, topology);
    hide = hide || travel_is_worth_hiding(problem, foreign[r], count(sets[r]));
  }
  schedule.forward.resize(hide ? 2 : 1);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    const Ranges& owned = schedule.owned[r];
    if (sets[r].empty()) continue;
    const int32_t q = schedule.add_region({owned, q_heads});
    // All own keys, not just those needed: then no row has to be packed.
    Ranges keys;
    if (overlap(sets[r], needed[r])) keys = owned;
    if (hide && !keys.empty()) {
      schedule.forward[0].attend.push_back({rank, q, schedule.add_region({keys, kv_heads})});
      keys.clear();
    }
    for (const auto& [source, tokens] : foreign[r].by_source) {  // so that what arrives lies where it is read
      keys.insert(keys.end(), tokens.begin(), tokens.end());
      schedule.forward.back().in.push_back(
          {Operand::kKV, false, false, source, rank, schedule.add_region({tokens, kv_heads})});
    }
    if (!keys.empty())
      schedule.forward.back().attend.push_back({rank, q, schedule.add_region({keys, kv_heads})});
  }
  add_adjoint(schedule, true, false);
  return schedule;
}

}  // namespace

const Strategy kBalanced{"balanced",
                         "chunks dealt for equal load; only needed KV travels, hidden where that pays",
                         supports, schedule};

}  // namespace longspan
