#include "kernels/sm90/backward/planner/arrangement.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "kernels/sm90/backward/planner/choose_split.h"
#include "kernels/sm90/backward/planner/pass_ctas.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

void sort_keys(CompiledMap& map, KeyOrder order) {
  if (order == KeyOrder::kOfMap) return;
  std::vector<WorkRow> by_key(map.row_tiles);
  for (size_t begin = 0; begin < map.work.size(); begin += map.row_tiles) {
    const auto rows = std::span(map.work).subspan(begin, map.row_tiles);
    for (const WorkRow& row : rows) by_key[row.row_tile] = row;
    std::ranges::copy(by_key, rows.begin());
    if (order == KeyOrder::kFromLastKey) std::ranges::reverse(rows);
    if (order == KeyOrder::kHeaviestFirst) std::ranges::stable_sort(rows, std::greater<>(), &WorkRow::tiles);
  }
}

double time_of_tile(int64_t head_dim, const BackwardShape& shape) {
  for (const tuned::Tile& tile : tuned::kTiles)
    if (tile.head_dim == head_dim && tile.rows == shape.rows && tile.keys == shape.keys) return tile.time;
  return 1;  // of no other one
}

class Arranger {
 public:
  // Lays the tiles and, unless additions are ordered, chooses the split.
  Arranger(const Problem& problem, const BackwardShape& shape, int64_t units)
      : problem_(problem), shape_(shape), units_(units), workers_(shape.workers(units)) {
    result_.shape = shape_, result_.shape.any_tile = false;
    result_.grid = lay_tiles(*problem_.masks, shape_.tile_shape(), shape_.aligned);
    result_.row_tiles = static_cast<int32_t>(result_.grid.rows.size() / problem_.masks->size());
    result_.key_tiles = result_.grid.map.row_tiles;
    columns_ = columns_of(result_.grid.map, problem_.masks->size());
    if (shape_.writes_dq()) find_visited_once();
    if (shape_.split)
      split_ = *shape_.split;
    else if (shape_.store != BackwardStore::kOrdered)
      choose_cheapest();
  }
  // Of the split, in tiles of 64 rows by 128 keys of head_dim 128. Infinite if there was nothing to choose.
  double time() const { return time_; }

  BackwardArrangement arrange() {
    CompiledMap& map = result_.grid.map;
    const bool ordered = shape_.store == BackwardStore::kOrdered;
    if (!shape_.split && ordered) {
      choose_in_order(split_candidates(problem_, shape_, columns_, workers_));
    } else {
      if (shape_.pass_ctas != 0 && can_do_passes(problem_, shape_)) give_passes_ctas();
      split_by(split_);
    }
    if (ordered)
      result_.schedule = result_.split.by_time
                             ? schedule(map, result_.items, result_.split.walk, simulated_by())
                             : order_by_items(map, result_.items, result_.split.walk.descending);
    return std::move(result_);
  }

 private:
  void find_visited_once() {
    const CompiledMap& map = result_.grid.map;
    std::vector<int32_t> visits(result_.grid.rows.size());
    for (size_t i = 0; i < map.work.size(); ++i) {
      int32_t* const of_mask = visits.data() + i / map.row_tiles * result_.row_tiles;
      for_each_row_tile(map, map.work[i], false, [&](int32_t tile) { ++of_mask[tile]; });
    }
    for (const int32_t count : visits) result_.visited_once.push_back(count == 1 ? 1 : 0);
    if (share_summed() > 1 - tuned::kLeastVisitedOnce) result_.visited_once.clear();
  }
  // The share of row tiles whose dq the pass after has to write.
  double share_summed() const {
    const std::vector<uint8_t>& once = result_.visited_once;
    return once.empty() ? 1 : std::ranges::count(once, 0) / static_cast<double>(once.size());
  }

  // CTAs that do passes are part of a candidate. If there are none, kernels before and after do all of them.
  void choose_cheapest() {
    const std::vector<BackwardSplit> splits = split_candidates(problem_, shape_, columns_, workers_);
    split_ = splits.front();
    if (splits.size() == 1 && shape_.kind == BackwardKind::kScattered) return;
    const bool passes = shape_.pass_ctas == kAsSuits && can_do_passes(problem_, shape_);
    for (const BackwardSplit& split : splits) {
      const BackwardPassWork work = pass_work(split);
      const int ctas = passes ? choose_pass_ctas(work) : 0;
      const double time = time_of_tile(problem_.head_dim, shape_) *
                              time_of_split(problem_, shape_, columns_, split, workers_ - ctas) +
                          tiles_of_passes_alone(work, ctas > 0);
      const bool more_rounds = split.parts == split_.parts && split.last_rounds > split_.last_rounds;
      if (time < (more_rounds ? tuned::kBetterByRounds : 1) * time_) time_ = time, split_ = split;
    }
  }

  // The split is that of a plan in which all CTAs take items.
  void give_passes_ctas() {
    int64_t ctas = shape_.pass_ctas;
    if (ctas == kAsSuits) ctas = choose_pass_ctas(pass_work(split_));
    result_.pass_ctas = static_cast<int32_t>(std::min(ctas, units_ / 2));
    workers_ = units_ - result_.pass_ctas;
  }

  BackwardPassWork pass_work(const BackwardSplit& split) const {
    const BackwardSharing sharing = sharing_of(problem_, shape_, split, columns_.key_tiles, workers_);
    int64_t per_list = 0;
    for (const BackwardColumns::Column& column : columns_.columns)
      per_list += parts_of(column.tiles, sharing);
    const BackwardJobs jobs{sections_of(problem_, shape_, split, per_list, workers_), result_.row_tiles};
    // Bytes before: o and do in 16 bits, and zeros in fp32 for dq unless it is stored. After: dq in fp32
    // and in 16 bits.
    const bool stored = shape_.store != BackwardStore::kAdded;
    return {.units = units_,
            .jobs = jobs,
            .section_items = jobs.heads_of(0) * per_list,
            .bytes_before = shape_.rows * problem_.head_dim * (stored ? 4 : 8),
            .bytes_after = static_cast<int64_t>(share_summed() * shape_.rows * problem_.head_dim * 6),
            .tiles = columns_.tiles * problem_.heads_q};
  }

  void split_by(const BackwardSplit& split) {
    sort_keys(result_.grid.map, split.order);
    result_.items = share_out(result_.grid, sharing_of(problem_, shape_, split, result_.key_tiles, workers_));
    if (split.last_pieces > 1) cut_by_rows(result_.grid.map, split.last_pieces, result_.items);
    result_.split = split;
    static_cast<BackwardSections&>(result_) =
        sections_of(problem_, shape_, split, result_.items.per_list, workers_);
    const bool lists = result_.items.lists > 1 && (shape_.store != BackwardStore::kOrdered || split.by_time);
    result_.last_list = lists ? result_.items.per_list : 0;
  }

  // Additions to a row tile follow the order of key tiles. In a good order long columns run ahead of the
  // short ones that they would hold up, or behind them. Takes the candidate that the simulation finds
  // cheapest, but an earlier one if the difference is within the simulation's error.
  void choose_in_order(const std::vector<BackwardSplit>& splits) {
    if (splits.size() == 1) return split_by(splits.front());
    std::vector<double> times(splits.size());
    constexpr size_t kMostCopied = size_t{512} << 10;  // runs and spans
    if (result_.grid.map.runs.size() + result_.grid.map.spans.size() <= kMostCopied)
      parallel_for(splits.size(), [&](int64_t i, int) { times[i] = Arranger(*this).time_of(splits[i]); });
    else
      for (size_t i = 0; i < splits.size(); ++i) times[i] = time_of(splits[i]);
    size_t best = 0;
    // The simulation's error is smaller by time, when it knows what lets an addition begin, and where it
    // counts the rows that are not in L2.
    const auto needed = [&](const BackwardSplit& split) {
      return split.by_time ? tuned::kBetterByTime : counts_l2() ? 1 : tuned::kBetter;
    };
    for (size_t i = 1; i < splits.size(); ++i)
      if (times[i] < needed(splits[i]) * times[best]) best = i;
    split_by(splits[best]);
  }

  double time_of(const BackwardSplit& split) {
    split_by(split);
    if (split.by_time) return time_schedule(result_.grid.map, result_.items, split.walk, simulated_by());
    const auto first_list = std::span(result_.items.work).first(result_.items.per_list);
    return time_walk(result_.grid.map, first_list, split.walk, simulated_by());
  }

  // In shorter columns the price of rows that are not in L2 was not measured.
  bool counts_l2() const { return shape_.kind == BackwardKind::kLong; }

  SimulatedBy simulated_by() const {
    const auto of_tile = static_cast<double>(shape_.rows * problem_.head_dim);
    return {.l2_visits = counts_l2() ? tuned::kReusedRows / of_tile : 0,
            .sections = result_,
            .workers = static_cast<int32_t>(workers_),
            .streams = shape_.streams(),
            .last_list = result_.last_list,
            .per_head_masks = problem_.masks->size() > 1,
            // Items that KV heads share cannot have visits of their own.
            .spread = shape_.kind == BackwardKind::kScattered &&
                      problem_.masks->size() == static_cast<size_t>(problem_.heads_kv)};
  }

  const Problem& problem_;
  const BackwardShape& shape_;
  int64_t units_, workers_;
  BackwardColumns columns_;
  BackwardSplit split_;
  double time_ = std::numeric_limits<double>::infinity();  // of split_
  BackwardArrangement result_;
};

}  // namespace

BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape, int64_t units) {
  Arranger arranger(problem, shape, units);
  if (shape.any_tile && !shape.split) {
    const BackwardShape with_other = other_tile(shape);
    Arranger other(problem, with_other, units);
    if (other.time() < arranger.time()) return other.arrange();
  }
  return arranger.arrange();
}

}  // namespace longspan::sm90
