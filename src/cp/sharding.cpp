#include "cp/sharding.h"

#include "base/error.h"

namespace longspan {
namespace {

constexpr int64_t kMinChunk = 64;  // tokens: documents too short for 2P such chunks are dealt together

void deal_zigzag(Range range, std::vector<Ranges>& parts) {
  const auto n = static_cast<int64_t>(parts.size());
  for (int64_t part = 0; part < n; ++part) {
    for (int64_t chunk : {part, 2 * n - 1 - part}) {
      const Range dealt = part_of(range, chunk, 2 * n);
      if (dealt.empty()) continue;
      Ranges& list = parts[static_cast<size_t>(part)];
      if (!list.empty() && list.back().end == dealt.begin) {
        list.back().end = dealt.end;
      } else {
        list.push_back(dealt);
      }
    }
  }
}

}  // namespace

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
    if (covered < span.begin) blocks.push_back({covered, span.begin});  // tokens that no pair touches
    blocks.push_back(span);
    covered = span.end;
  }
  if (covered < problem.tokens_q) blocks.push_back({covered, problem.tokens_q});
  return blocks;
}

std::vector<Ranges> shard(const Problem& problem, int parts, Sharding sharding) {
  std::vector<Ranges> shards(static_cast<size_t>(parts));
  const Range all{0, problem.tokens_q};
  switch (sharding) {
    case Sharding::kContiguous:
      for (int part = 0; part < parts; ++part) {
        const Range range = part_of(all, part, parts);
        if (!range.empty()) shards[static_cast<size_t>(part)].push_back(range);
      }
      return shards;
    case Sharding::kZigzag:
      deal_zigzag(all, shards);
      return shards;
    case Sharding::kAuto:
    case Sharding::kPerDocument: {
      Range block{0, 0};
      for (const Range& next : diagonal_blocks(problem)) {
        block.end = next.end;
        if (block.size() < 2 * parts * kMinChunk && block.end < problem.tokens_q) continue;
        deal_zigzag(block, shards);
        block.begin = block.end;
      }
      return shards;
    }
  }
  LONGSPAN_CHECK(false, "sharding {} is unknown", static_cast<int>(sharding));
  return shards;
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
