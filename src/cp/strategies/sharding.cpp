#include "cp/strategies/sharding.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace longspan {
namespace {

constexpr int64_t kMinChunk = 64;  // tokens; documents too short for 2P such chunks are dealt together

// Deals ranges one after another, each in pairs of chunks (p, 2P - 1 - p) of 2P.
class Zigzag {
 public:
  // `until` is empty or holds the cumulative load before each row. If it is given, pairs of unequal load go
  // to the least loaded parts, heaviest first. Pairs are equal within one causal document, but not if several
  // short documents are dealt together.
  Zigzag(int parts, std::vector<double> until)
      : parts_(static_cast<size_t>(parts)), loads_(parts_.size()), until_(std::move(until)) {}

  void deal(Range range) {
    std::vector<size_t> pairs(parts_.size()), receivers(parts_.size());
    std::iota(pairs.begin(), pairs.end(), size_t{0});
    receivers = pairs;
    if (!until_.empty()) {
      std::vector<double> load;
      load.reserve(pairs.size());
      for (size_t pair : pairs)
        load.push_back(load_of(chunk(range, pair)) + load_of(chunk(range, mirror(pair))));
      const auto [least, most] = std::minmax_element(load.begin(), load.end());
      if (*most > 1.01 * *least) {
        std::stable_sort(pairs.begin(), pairs.end(), [&](size_t a, size_t b) { return load[a] > load[b]; });
        std::stable_sort(receivers.begin(), receivers.end(),
                         [&](size_t a, size_t b) { return loads_[a] < loads_[b]; });
      }
      for (size_t i = 0; i < pairs.size(); ++i) loads_[receivers[i]] += load[pairs[i]];
    }
    for (size_t i = 0; i < pairs.size(); ++i) {
      append(parts_[receivers[i]], chunk(range, pairs[i]));
      append(parts_[receivers[i]], chunk(range, mirror(pairs[i])));
    }
  }

  std::vector<Ranges> parts() && { return std::move(parts_); }

 private:
  size_t mirror(size_t pair) const { return 2 * parts_.size() - 1 - pair; }
  Range chunk(Range range, size_t number) const {
    return part_of(range, static_cast<int64_t>(number), static_cast<int64_t>(2 * parts_.size()));
  }
  double load_of(Range range) const {
    return until_[static_cast<size_t>(range.end)] - until_[static_cast<size_t>(range.begin)];
  }

  std::vector<Ranges> parts_;
  std::vector<double> loads_;
  const std::vector<double> until_;
};

}  // namespace

void check_owned(std::span<const Ranges> owned, int64_t tokens, int ranks) {
  LONGSPAN_CHECK_INPUT(owned.size() == static_cast<size_t>(ranks), "tokens of {} ranks are given for {}",
                       owned.size(), ranks);
  Ranges all;
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    for (const Range& range : owned[rank]) {
      LONGSPAN_CHECK_INPUT(0 <= range.begin && range.begin < range.end && range.end <= tokens,
                           "rank {} is given tokens {} to {}; ranges must not be empty and lie in 0 to {}",
                           rank, range.begin, range.end, tokens);
      all.push_back(range);
    }
  }
  std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.begin < b.begin; });
  int64_t next = 0;
  for (const Range& range : all) {
    LONGSPAN_CHECK_INPUT(range.begin == next, "token {} is given to {}; each belongs to one rank",
                         std::min(range.begin, next), range.begin < next ? "two ranks" : "no rank");
    next = range.end;
  }
  LONGSPAN_CHECK_INPUT(next == tokens, "token {} is given to no rank; each belongs to one rank", next);
}

std::vector<double> area_until(const Problem& problem) {
  std::vector<double> until(static_cast<size_t>(problem.tokens_q) + 1);
  for (const Mask& mask : *problem.masks) {
    double sum = 0;
    const std::vector<int64_t> counts = mask.visible_counts();
    for (size_t row = 0; row < counts.size(); ++row) {
      sum += static_cast<double>(counts[row]) / static_cast<double>(problem.masks->size());
      until[row + 1] += sum;
    }
  }
  return until;
}

Ranges diagonal_blocks(const Problem& problem) {
  Ranges spans;
  for (const Mask& mask : *problem.masks) {
    for (const Band& band : mask.bands()) {
      spans.push_back({std::min(band.q.begin, band.k.begin), std::max(band.q.end, band.k.end)});
    }
  }
  std::sort(spans.begin(), spans.end(), [](Range a, Range b) { return a.begin < b.begin; });
  Ranges blocks;
  int64_t covered = 0;
  for (const Range& span : spans) {
    if (span.begin < covered) {  // overlaps the last block
      blocks.back().end = covered = std::max(covered, span.end);
      continue;
    }
    if (covered < span.begin) blocks.push_back({covered, span.begin});  // tokens without visible pairs
    blocks.push_back(span);
    covered = span.end;
  }
  if (covered < problem.tokens_q) blocks.push_back({covered, problem.tokens_q});
  return blocks;
}

std::vector<Ranges> shard(const Problem& problem, int parts, Sharding sharding) {
  const Range all{0, problem.tokens_q};
  switch (sharding) {
    case Sharding::kContiguous: {
      std::vector<Ranges> shards(static_cast<size_t>(parts));
      for (int part = 0; part < parts; ++part)
        append(shards[static_cast<size_t>(part)], part_of(all, part, parts));
      return shards;
    }
    case Sharding::kZigzag: {
      Zigzag zigzag(parts, {});
      zigzag.deal(all);
      return std::move(zigzag).parts();
    }
    case Sharding::kAuto:
    case Sharding::kPerDocument: {
      const Ranges blocks = diagonal_blocks(problem);
      Zigzag zigzag(parts, blocks.size() > 1 ? area_until(problem) : std::vector<double>());
      Range block{0, 0};
      for (const Range& next : blocks) {
        block.end = next.end;
        if (block.size() < int64_t{2} * parts * kMinChunk && block.end < problem.tokens_q) continue;
        zigzag.deal(block);
        block.begin = block.end;
      }
      return std::move(zigzag).parts();
    }
  }
  LONGSPAN_CHECK(false, "sharding {} is unknown", static_cast<int>(sharding));
  return {};
}

Ranges needed_keys(const Problem& problem, const Ranges& rows, Range heads) {
  const Ranges everything{{0, problem.tokens_kv}};
  Ranges columns;
  const auto masks = static_cast<int64_t>(problem.masks->size());
  for (int64_t head = masks == 1 ? 0 : heads.begin; head < (masks == 1 ? 1 : heads.end); ++head) {
    const Mask part = problem.mask_of_kv_head(head).gather(rows, everything);
    for (const Band& band : part.bands()) columns.push_back(band.k);
    columns = set_of(columns);
  }
  return columns;
}

}  // namespace longspan
