#include "kernels/sm90/backward/planner/choose_split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr BackwardWalk kDownByRows{.descending = true, .by_rows = true};
constexpr BackwardWalk kDownByHeads{.descending = true, .by_rows = false};

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
        of_cta_(visits_ / workers),
        rounds_(static_cast<double>(columns.key_tiles * problem.heads_kv) / static_cast<double>(workers)) {}

  BackwardSplit freely() const {
    switch (shape_.kind) {
      case BackwardKind::kBlocks: {
        // Whole groups, unless columns are long.
        const int64_t most = std::clamp<int64_t>(of_cta_ / tuned::kBlocksItemsOfCta, tuned::kMinTilesOfItem,
                                                 tuned::kBlocksMaxTiles);
        const int64_t tiles = columns_.tiles * group_ / std::max<int64_t>(columns_.key_tiles, 1);
        return {.parts = parts_of((tiles + most - 1) / most), .last_rounds = tuned::kFewLastRounds};
      }
      case BackwardKind::kOneBand:
      case BackwardKind::kBands:
        // Documents of full tiles gain from whole groups as soon as there is one item for each CTA.
        if (rounds_ < (shape_.kind == BackwardKind::kBands && full() ? 1 : tuned::kFewRounds)) return few();
        return shape_.kind == BackwardKind::kOneBand ? one_band() : bands();
      case BackwardKind::kLong:
        return longs();
      default:
        return {.parts = parts_of(group_)};
    }
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
        if (by_time(tuned::kMaxScheduledVisits) &&
            columns_.runs >= tuned::kOrderedMinRuns * columns_.key_tiles)
          return {{.parts = parts_of(group_), .by_time = true}};
        return scattered_in_order();
    }
  }

 private:
  static constexpr int64_t kMostTried = int64_t{1} << 16;  // visits, for each of several candidates

  // Whether additions may follow a simulated run: it takes tiles of 64 rows, and time to plan.
  bool by_time(int64_t most_visits) const {
    return shape_.by_time && shape_.rows == 64 && visits_ <= most_visits;
  }

  // Whether most items begin with full tiles.
  bool full() const { return columns_.full_first * 2 >= columns_.tiles; }

  // The smallest divisor of the group that is at least `least`.
  int32_t parts_of(int64_t least) const {
    int64_t parts = std::clamp<int64_t>(least, 1, group_);
    while (group_ % parts != 0) ++parts;
    return static_cast<int32_t>(parts);
  }

  // About as many key tiles as CTAs, or fewer.
  BackwardSplit few() const {
    // Documents are short, so their items may be larger parts of a CTA's work.
    const double enough =
        shape_.kind == BackwardKind::kBands ? tuned::kFewMinItemsOfDocuments : tuned::kFewMinItems;
    int64_t parts = 1;
    while (parts < group_ && rounds_ * static_cast<double>(parts) < enough) ++parts;
    return {.parts = parts_of(parts),
            .most_tiles = tuned::kFewMaxTiles,
            .order = KeyOrder::kByKeys,
            .group_items = tuned::kGroupItems,
            .last_rounds = tuned::kFewLastRounds};
  }

  // Equal columns: the split with the lowest cost, since wave quantization decides. Other columns: one head
  // an item if there are many rounds, two if beginnings and ends count for more.
  BackwardSplit longs() const {
    // Not whole groups: rows of too many heads would be in use at once.
    const int64_t fewest = std::min<int64_t>(group_, tuned::kLongMinParts);
    if (columns_.begin_together == columns_.key_tiles && columns_.end_together == columns_.key_tiles) {
      BackwardSplit split{.parts = parts_of(group_),
                          .last_rounds = shape_.section_units > 0 ? 0 : tuned::kFewLastRounds};
      double best = time_of_rounds(split.parts);
      for (int64_t parts = group_ - 1; parts >= fewest; --parts)
        if (const double time = time_of_rounds(parts); group_ % parts == 0 && time < best)
          best = time, split.parts = static_cast<int32_t>(parts);
      return split;
    }
    int64_t parts = group_;
    if (rounds_ < tuned::kLongFewRounds)
      parts = std::max({fewest, group_ / 2, static_cast<int64_t>(std::ceil(tuned::kLongMinItems / rounds_))});
    // In very long columns a few heads have enough items until the end.
    return {.parts = parts_of(parts), .last_rounds = shape_.section_units > 0 ? 0 : tuned::kFewLastRounds};
  }

  double time_of_rounds(int64_t parts) const {
    return cost_of_equal_items(rounds_ * static_cast<double>(parts),
                               static_cast<double>(columns_.longest * group_) / static_cast<double>(parts));
  }

  BackwardSplit one_band() const {
    // Items of whole groups need no sums of dk and dv, but with few rounds they end far apart. Pass CTAs
    // leave fewer CTAs to count rounds by.
    if (rounds_ >= (shape_.pass_ctas != 0 ? tuned::kBandWholeRoundsWithPasses : tuned::kBandWholeRounds))
      return {.order = KeyOrder::kByKeys, .group_items = static_cast<int32_t>(workers_)};
    if (rounds_ >= tuned::kBandHalfRounds)
      return {.parts = parts_of(2),
              .order = KeyOrder::kByKeys,
              .group_items = static_cast<int32_t>(workers_),
              .last_rounds = tuned::kFewLastRounds};
    int64_t parts = group_;
    while (parts % 2 == 0 && rounds_ * static_cast<double>(parts) / 2 >= tuned::kBandMinItems) parts /= 2;
    const int64_t part = of_cta_ / tuned::kBandItemsOfCta;
    return {.parts = static_cast<int32_t>(parts),
            .most_tiles = columns_.longest * group_ <= part
                              ? 0
                              : std::clamp<int64_t>(part, tuned::kMinTilesOfItem, tuned::kBandMaxTiles),
            .order = KeyOrder::kByKeys,
            .group_items = static_cast<int32_t>(workers_)};
  }

  BackwardSplit bands() const {
    using enum KeyOrder;
    const auto at_most = [&](int64_t tiles) {
      return std::clamp<int64_t>(of_cta_, tuned::kMinTilesOfItem, tiles);
    };
    const auto workers = static_cast<int32_t>(workers_);
    // Items that begin where the others are meet the same rows, however long they are.
    if (full() && rounds_ >= tuned::kFewRounds)
      return {.parts = parts_of(
                  rounds_ >= tuned::kSomeRounds && rounds_ < tuned::kManyRounds ? tuned::kDocumentsParts : 1),
              .most_tiles = at_most(tuned::kDocumentsMaxTilesFull),
              .order = kByKeys,
              .group_items = workers};
    if (rounds_ < tuned::kManyRounds) {
      BackwardSplit split{.parts = parts_of(full() ? 1 : 2),
                          .most_tiles = tuned::kDocumentsMaxTiles,
                          .order = kHeaviestFirst,
                          .group_items = tuned::kGroupItems,
                          .last_rounds = tuned::kFewLastRounds};
      // Some keys are seen by far more rows than others, such as a shared question.
      if (columns_.longest * columns_.key_tiles > tuned::kDocumentsUneven * columns_.tiles) {
        if (rounds_ >= tuned::kSomeRounds)
          split.parts = 1, split.most_tiles = tuned::kDocumentsMaxTilesUneven, split.group_items = workers;
      } else if (rounds_ < tuned::kSomeRounds && columns_.end_together == columns_.key_tiles) {
        split.parts = parts_of(tuned::kDocumentsParts);  // all end with the same rows
      }
      return split;
    }
    return {.most_tiles = at_most(tuned::kDocumentsMaxTilesMany),
            .order = kByKeys,
            .group_items = workers,
            .last_rounds = tuned::kFewLastRounds};
  }

  // Items begin where all columns do, so that additions do not stall: at the last row if the mask is
  // causal.
  std::vector<BackwardSplit> long_in_order() const {
    if (columns_.end_together <= columns_.begin_together) return {{.order = KeyOrder::kByKeys}};
    return {{.parts = parts_of(rounds_ < tuned::kSomeRounds ? 2 : 1),
             .order = KeyOrder::kByKeys,
             .walk = kDownByRows}};
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
    const int64_t tiles = std::clamp<int64_t>(short_of_items ? of_cta_ / 2 : of_cta_, tuned::kMinTilesOfItem,
                                              tuned::kOrderedDocumentsMaxTiles);
    // If all columns end with the same rows, additions to these are one long queue for each head. Several
    // heads at once have several queues, until each CTA has four items in them.
    const int64_t queues =
        std::clamp(tuned::kOrderedItemsOfQueue * workers_ / columns_.key_tiles, tuned::kOrderedMinHeads,
                   std::max(workers_ / tuned::kCtasOfHead, tuned::kOrderedMinHeads));
    const int64_t kv_heads = columns_.end_together == columns_.key_tiles ? queues : 1;
    const auto with = [&](KeyOrder order, int64_t most, int64_t parts = 1) {
      return BackwardSplit{.parts = parts_of(parts),
                           .most_tiles = std::max(most, tuned::kMinTilesOfItem),
                           .order = order,
                           .group_items = 1,
                           .kv_heads = static_cast<int32_t>(kv_heads),
                           .walk = kDownByRows};
    };
    std::vector<BackwardSplit> result{with(kHeaviestFirst, tiles), with(kFromLastKey, tiles),
                                      with(kByKeys, tiles), with(kHeaviestFirst, tiles / 2)};
    if (short_of_items)
      for (const int64_t parts : {1, 2})
        for (const int64_t most : {of_cta_, tuned::kOrderedDocumentsTiles})
          for (const KeyOrder order : {kHeaviestFirst, kByKeys}) result.push_back(with(order, most, parts));
    if (short_of_items && rounds_ >= tuned::kFewRounds && by_time(kMostTried))
      for (size_t i = 0, count = result.size(); i < count; ++i)
        if (result[i].order == kHeaviestFirst) result.emplace_back(result[i]).by_time = true;
    return result;
  }

  // Items of two heads, head after head, so that walks differ in direction alone.
  std::vector<BackwardSplit> scattered_in_order() const {
    using enum KeyOrder;
    std::vector<BackwardSplit> result;
    for (const bool descending : {false, true})
      for (const KeyOrder order : {kHeaviestFirst, kByKeys, kFromLastKey, kLightestFirst})
        result.push_back({.parts = parts_of(group_ / 2),
                          .order = order,
                          .walk = {.descending = descending, .by_rows = false}});
    return result;
  }

  const BackwardShape& shape_;
  const BackwardColumns& columns_;
  int64_t workers_, group_;
  int64_t visits_;  // to tiles, of all heads
  int64_t of_cta_;  // visits for each CTA
  double rounds_;   // items of whole groups for each CTA
};

}  // namespace

double cost_of_equal_items(double rounds, double tiles) {
  return std::ceil(rounds) / rounds * (1 + tuned::kLongItemEnds / tiles);
}

BackwardColumns columns_of(const CompiledMap& map, int32_t rows, int64_t masks) {
  BackwardColumns columns{.key_tiles = map.row_tiles};
  int32_t first = std::numeric_limits<int32_t>::max(), last = 0;
  const auto end_of = [&](const DeviceRun& run) { return run.column / rows + tiles_of(run); };
  for (const DeviceRun& run : map.runs)
    first = std::min(first, run.column / rows), last = std::max(last, end_of(run));
  for (const WorkRow& row : map.work) {
    if (row.runs == 0) continue;
    const std::span runs(map.runs.data() + row.first_run, static_cast<size_t>(row.runs));
    const int64_t tiles = map.tiles(row.first_run, row.runs);
    columns.tiles += tiles;
    columns.runs += row.runs;
    columns.longest = std::max(columns.longest, tiles);
    if (runs.front().code >= tuned::kShortRun) columns.full_first += tiles;
    columns.begin_together += runs.front().column / rows == first;
    columns.end_together += end_of(runs.back()) == last;
  }
  for (int64_t* sum :
       {&columns.tiles, &columns.runs, &columns.full_first, &columns.begin_together, &columns.end_together})
    *sum /= masks;
  return columns;
}

std::vector<BackwardSplit> choose_splits(const Problem& problem, const BackwardShape& shape,
                                         const BackwardColumns& columns, int64_t workers) {
  const Splitter splitter(problem, shape, columns, workers);
  if (shape.store == BackwardStore::kOrdered) return splitter.in_order();
  return {splitter.freely()};
}

}  // namespace longspan::sm90
