#include "kernels/sm90/backward/planner/choose_split.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "base/ceil_div.h"
#include "kernels/plan/makespan.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr BackwardWalk kDownByRows{.descending = true, .by_rows = true};
constexpr BackwardWalk kDownByHeads{.descending = true, .by_rows = false};

// Causal documents: key tiles begin in more row tiles than they end in. Head after head, the CTAs would drift
// apart, and L2 would lose their rows.
bool is_stairs(const BackwardShape& shape, const BackwardColumns& columns) {
  return shape.store == BackwardStore::kClaimed && shape.kind == BackwardKind::kBands &&
         tuned::kStairEnds * columns.begins > tuned::kStairBegins * columns.ends;
}

// How often the heads of an item double, from one on, for a mean tile.
double doublings_of(const BackwardColumns& columns, const BackwardSharing& sharing) {
  double sum = 0;
  for (const BackwardColumns::Column& column : columns.columns)
    sum += static_cast<double>(column.tiles) * std::log2(sharing.group / parts_of(column.tiles, sharing));
  return sum / static_cast<double>(std::max<int64_t>(columns.tiles, 1));
}

// An item's beginning and end take as long as two or three tiles, so items should be long. But the longest
// item must not keep one CTA busy when the others are done, and CTAs should meet the same rows at about the
// same time, to find them in L2. tuning/h200.h has the measured balance.
class Splitter {
 public:
  Splitter(const Problem& problem, const BackwardShape& shape, const BackwardColumns& columns,
           int64_t workers)
      : shape_(shape),
        columns_(columns),
        workers_(workers),
        group_(problem.group_size()),
        visits_(columns.tiles * problem.heads_q),
        heads_in_l2_(tuned::kRowsInL2 / static_cast<double>(problem.tokens_q * problem.head_dim)),
        rounds_(static_cast<double>(columns.key_tiles * problem.heads_kv) / static_cast<double>(workers)) {}

  // Long columns and blocks: the heaviest key tiles first, some heads at a time. Others: neighbouring key
  // tiles together, which find the same rows in L2.
  std::vector<BackwardSplit> freely() const {
    using enum BackwardKind;
    // Blocks that tiles do not divide: items of more heads are not as fast as they are priced (version 53).
    if (shape_.kind == kScattered && shape_.aligned) return {{.parts = parts_of(group_)}};
    // In a causal mask all columns end together. With equal heads the order of keys has better sections.
    const bool together = columns_.end_together == columns_.key_tiles && group_ > 1;
    const bool by_keys = shape_.kind == kBands || (shape_.kind == kOneBand && !together);
    const bool stairs = is_stairs(shape_, columns_), cut = shape_.kind == kLong && heads_in_l2_ >= 2;
    const int64_t longest = columns_.columns.empty() ? 0 : columns_.columns.front().tiles;
    std::vector<BackwardSplit> result;
    for (int32_t parts = 1; parts <= group_; ++parts) {
      if (group_ % parts != 0) continue;
      if (!by_keys) {
        // The fewest KV heads at the end that price alike: their rows are in L2 together.
        for (int rounds = 1; rounds <= tuned::kLastRounds; ++rounds)
          result.push_back({.parts = parts, .last_rounds = rounds});
        for (const int32_t pieces : tuned::kLastPieces) {
          const int64_t items = columns_.key_tiles * parts * pieces;  // of the last KV head
          if (cut && columns_.tiles * group_ >= items * tuned::kMinTilesOfItem &&
              items <= tuned::kMostCutItems * workers_)
            result.push_back({.parts = parts, .last_rounds = 0, .last_pieces = pieces});
        }
        continue;
      }
      if (parts > 1 && rounds_ * parts > tuned::kMostRounds) break;
      for (const int64_t most : tuned::kMostTiles) {
        if (most > 0 && most * parts >= longest * group_) continue;
        const double doublings = doublings_of(columns_, {static_cast<int32_t>(group_), parts, most});
        result.push_back({.parts = parts,
                          .most_tiles = most,
                          .order = KeyOrder::kByKeys,
                          .group_items = static_cast<int32_t>(workers_),
                          .walk = stairs && doublings > tuned::kByRows ? kDownByRows : BackwardWalk{}});
      }
    }
    return result;
  }

  std::vector<BackwardSplit> in_order() const {
    using enum KeyOrder;
    switch (shape_.kind) {
      case BackwardKind::kBlocks:
        return {{.parts = parts_of(rounds_ < tuned::kSomeRounds ? 2 : 1),
                 .order = kHeaviestFirst,
                 .walk = kDownByRows}};
      case BackwardKind::kLong:
        return long_in_order();
      case BackwardKind::kOneBand:
        if (columns_.end_together == columns_.key_tiles && columns_.begin_together < columns_.key_tiles)
          return {{.parts = parts_of(2),
                   .most_tiles = tuned::kOrderedBandMaxTiles,
                   .order = kByKeys,
                   .group_items = 1,
                   .walk = kDownByRows}};
        return windows_in_order();
      case BackwardKind::kBands:
        return documents_in_order();
      default:
        return scattered_in_order();
    }
  }

 private:
  static constexpr int64_t kMostTried = int64_t{1} << 16;  // visits, for each of several candidates

  // Whether additions may follow a simulated run: it takes tiles of 64 rows, and time to plan.
  bool by_time(int64_t most_visits) const {
    return shape_.by_time && shape_.rows == 64 && visits_ <= most_visits;
  }

  // The smallest divisor of the group that is at least `least`.
  int32_t parts_of(int64_t least) const {
    int64_t parts = std::clamp<int64_t>(least, 1, group_);
    while (group_ % parts != 0) ++parts;
    return static_cast<int32_t>(parts);
  }

  // Items begin where all columns do, so that additions do not stall: at the last row if the mask is
  // causal.
  std::vector<BackwardSplit> long_in_order() const {
    if (columns_.end_together <= columns_.begin_together) return {{.order = KeyOrder::kByKeys}};
    std::vector<BackwardSplit> result;
    for (int32_t parts = 1; parts <= group_; ++parts) {
      if (group_ % parts != 0 || (parts > 1 && rounds_ * parts > tuned::kOrderedMostRounds)) continue;
      result.push_back({.parts = parts,
                        .order = KeyOrder::kByKeys,
                        .kv_heads = tuned::kOrderedHeads,
                        .walk = kDownByRows});
    }
    return result;
  }

  // All heads of a row before the next row, from the first row down, is faster as long as additions do not
  // stall: in windows to both sides with few rounds. Other windows go up from the last row, head after
  // head, since all heads of a row would come back to a row too late for L2.
  std::vector<BackwardSplit> windows_in_order() const {
    const auto with = [](BackwardWalk walk) {
      return BackwardSplit{.order = KeyOrder::kByKeys, .group_items = 1, .walk = walk};
    };
    if (rounds_ < tuned::kManyRounds) return {with({.by_rows = true}), with(kDownByHeads)};
    return {with(kDownByHeads)};
  }

  // Parts of a key tile wait for each other's dk and dv, so items are as long as possible. Documents want
  // the heaviest first. What all rows see, such as a shared question, has to come last if it is long, and
  // must not otherwise. With few items any such order stalls, and the order of time may be better; with
  // more items it was, in some masks only.
  std::vector<BackwardSplit> documents_in_order() const {
    using enum KeyOrder;
    const bool short_of_items = rounds_ < tuned::kSomeRounds;
    const int64_t of_cta = visits_ / workers_;
    const int64_t tiles = std::clamp<int64_t>(short_of_items ? of_cta / 2 : of_cta, tuned::kMinTilesOfItem,
                                              tuned::kOrderedDocumentsMaxTiles);
    // If all columns end with the same rows, additions to these are one long queue for each head.
    const int32_t kv_heads = columns_.end_together == columns_.key_tiles ? tuned::kOrderedHeads : 1;
    const auto with = [&](KeyOrder order, int64_t most, int64_t parts = 1) {
      return BackwardSplit{.parts = parts_of(parts),
                           .most_tiles = std::max(most, tuned::kMinTilesOfItem),
                           .order = order,
                           .group_items = 1,
                           .kv_heads = kv_heads,
                           .walk = kDownByRows};
    };
    std::vector<BackwardSplit> result{with(kHeaviestFirst, tiles), with(kFromLastKey, tiles),
                                      with(kByKeys, tiles), with(kHeaviestFirst, tiles / 2)};
    if (short_of_items)
      for (const int64_t parts : {1, 2})
        for (const int64_t most : {of_cta, tuned::kOrderedDocumentsTiles})
          for (const KeyOrder order : {kHeaviestFirst, kByKeys}) result.push_back(with(order, most, parts));
    if (short_of_items && rounds_ >= tuned::kFewRounds && by_time(kMostTried))
      for (size_t i = 0, count = result.size(); i < count; ++i)
        if (result[i].order == kHeaviestFirst) result.emplace_back(result[i]).by_time = true;
    return result;
  }

  // Blocks: visits by time, since any order of items stalls. Items of several heads have fewer ends, but L2
  // has to hold their rows: tiles of few keys load them more often.
  std::vector<BackwardSplit> scattered_in_order() const {
    const bool many_runs = columns_.runs >= tuned::kOrderedMinRuns * columns_.key_tiles;
    const double most_heads = heads_in_l2_ * shape_.keys / h200::kFinestBlock;
    std::vector<BackwardSplit> result;
    for (int32_t parts = parts_of(group_); parts > 0; --parts)
      if (group_ % parts == 0 && (parts == group_ || static_cast<double>(group_) <= most_heads * parts) &&
          by_time(many_runs && parts == group_ ? tuned::kMaxScheduledVisits : tuned::kFewVisits))
        result.push_back({.parts = parts, .by_time = true});
    if (result.empty()) result.push_back({.parts = parts_of(group_ / 2), .order = KeyOrder::kHeaviestFirst});
    return result;
  }

  const BackwardShape& shape_;
  const BackwardColumns& columns_;
  int64_t workers_, group_;
  int64_t visits_;      // to tiles, of all heads
  double heads_in_l2_;  // whose rows L2 holds
  double rounds_;       // items of whole groups for each CTA
};

}  // namespace

double time_of_split(const Problem& problem, const BackwardShape& shape, const BackwardColumns& columns,
                     const BackwardSplit& split, int64_t workers) {
  const BackwardSharing sharing = sharing_of(problem, shape, split, columns.key_tiles, workers);
  struct Items {
    int64_t count = 0;  // of a key tile
    double time = 0;    // of one item
  };
  std::vector<Items> of_key_tile, by_keys(sharing.group_items > 0 ? columns.key_tiles : 0);
  of_key_tile.reserve(columns.columns.size());
  int64_t items = 0;
  double time = 0, longest = 0;
  for (const BackwardColumns::Column& column : columns.columns) {
    const int32_t parts = parts_of(column.tiles, sharing);
    const double of_item =
        column.time * sharing.group / parts + tuned::kItemEnds + (parts > 1 ? tuned::kPartSums : 0);
    of_key_tile.push_back({parts, of_item});
    if (!by_keys.empty()) by_keys[column.key_tile] = of_key_tile.back();
    items += parts, time += parts * of_item;
    longest = std::max(longest, of_item);
  }
  if (items == 0) return 0;
  const BackwardSections sections = sections_of(problem, shape, split, items, workers);
  // The query heads of all KV heads that are worked on together at the very end, and before.
  int64_t last = sharing.group;
  if (sharing.group_items == 0 && split.last_pieces == 1)
    while (last - sharing.heads_at_once >= sharing.last_heads) last -= sharing.heads_at_once;
  last *= sections.heads_of(sections.last_section);
  const int64_t at_once =
      int64_t{by_keys.empty() ? sharing.heads_at_once : sharing.group} * sections.section_heads;
  const auto items_of = [&](int64_t heads, int64_t of_group) {
    return ceil_div(of_group * heads, sharing.group);
  };
  const int64_t before = problem.heads_q - last;
  const bool few = items_of(before, items) <= tuned::kFewRoundsBefore * workers;
  const int64_t simulated =
      few ? before : std::min(tuned::kRoundsSimulated * workers / items_of(at_once, items) * at_once, before);
  // Until then, CTAs are taken to differ by a light item if the heaviest come first, else by a mean one.
  const double mean = time / static_cast<double>(items);
  const double step = by_keys.empty() ? of_key_tile.back().time : mean;
  plan::Makespan makespan(workers, static_cast<double>(items_of(before - simulated, items)) * mean / step,
                          step);
  for (int64_t heads = simulated; heads > 0; heads -= at_once)
    for (const auto& [count, of_item] : by_keys.empty() ? of_key_tile : by_keys)
      makespan.take(of_item, items_of(std::min(heads, at_once), count));
  if (sharing.most_tiles > 0) std::ranges::sort(of_key_tile, std::greater<>(), &Items::time);
  const double pieces = split.last_pieces, ends = tuned::kItemEnds * (1 - 1 / pieces);
  for (const auto& [count, of_item] : of_key_tile)
    makespan.take(of_item / pieces + ends + (pieces > 1 ? tuned::kPartSums : 0),
                  items_of(last, count) * split.last_pieces);
  double drift = 0;  // CTAs that drift apart load rows once more
  if (sharing.group_items > 0) {
    drift = doublings_of(columns, sharing) *
            (shape.kind == BackwardKind::kOneBand ? tuned::kDriftOfWindows : tuned::kDrift);
    if (is_stairs(shape, columns)) drift += std::min(drift, tuned::kMostOfStairs);
  } else {
    // By heads, CTAs whose items differ drift apart. L2 may not hold the rows of many heads at a time.
    const double uneven =
        std::min(2 * (1 - time / (static_cast<double>(items) * longest)), 1.0);  // 1 if the mask is causal
    const double heads_at_a_time =
        std::min<double>(workers * sharing.group / static_cast<double>(items), problem.heads_q);
    const auto elements = heads_at_a_time * static_cast<double>(problem.tokens_q * problem.head_dim);
    drift = uneven * (tuned::kUnevenDrift * std::log2(sharing.group / split.parts) +
                      tuned::kSpilled * std::max(elements / tuned::kFreeRows - 1, 0.0));
  }
  return makespan.end() * (1 + drift);
}

BackwardColumns columns_of(const CompiledMap& map, int64_t masks) {
  BackwardColumns columns;
  columns.key_tiles = map.row_tiles;
  columns.columns.reserve(map.row_tiles);
  int32_t first = std::numeric_limits<int32_t>::max();
  for (const DeviceRun& run : map.runs) first = std::min(first, run.column);
  const int32_t end = map.end_of_column_tiles();
  std::vector<bool> begins(end + 1), ends(end + 1);
  for (const WorkRow& row : map.work) {
    if (row.runs == 0) continue;
    const auto runs = std::span(map.runs).subspan(row.first_run, row.runs);
    columns.tiles += row.tiles;
    columns.runs += row.runs;
    if (&row - map.work.data() < map.row_tiles) {
      begins[map.first_tile(runs.front())] = ends[map.end_of(row)] = true;
      const auto partial = std::ranges::count_if(runs, [](const DeviceRun& run) { return run.code < 0; });
      columns.columns.push_back(
          {row.row_tile, row.tiles, row.tiles + tuned::kPartialTileCost * static_cast<double>(partial)});
    }
    columns.begin_together += runs.front().column == first;
    columns.end_together += map.end_of(row) == end;
  }
  columns.begins = std::ranges::count(begins, true), columns.ends = std::ranges::count(ends, true);
  for (int64_t* sum : {&columns.tiles, &columns.runs, &columns.begin_together, &columns.end_together})
    *sum /= masks;
  return columns;
}

std::vector<BackwardSplit> split_candidates(const Problem& problem, const BackwardShape& shape,
                                            const BackwardColumns& columns, int64_t workers) {
  const Splitter splitter(problem, shape, columns, workers);
  if (shape.store != BackwardStore::kOrdered) return splitter.freely();
  std::vector<BackwardSplit> splits = splitter.in_order();
  for (BackwardSplit& split : splits) split.last_rounds = tuned::kOrderedLastRounds;
  return splits;
}

}  // namespace longspan::sm90
