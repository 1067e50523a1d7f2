#include "kernels/sm90/backward/planner/arrangement.h"

#include <algorithm>
#include <functional>
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
    if (order == KeyOrder::kLightestFirst) std::ranges::stable_sort(rows, std::less<>(), &WorkRow::tiles);
  }
}

class Arranger {
 public:
  Arranger(const Problem& problem, const BackwardShape& shape, int64_t units)
      : problem_(problem), shape_(shape), units_(units), workers_(shape.workers(units)) {}

  BackwardArrangement arrange() {
    result_.grid = lay_tiles(*problem_.masks, shape_.tile_shape(), shape_.aligned);
    CompiledMap& map = result_.grid.map;
    result_.row_tiles = static_cast<int32_t>(result_.grid.rows.size() / problem_.masks->size());
    result_.key_tiles = map.row_tiles;
    const BackwardColumns columns = columns_of(map, problem_.masks->size());
    if (shape_.writes_dq()) find_visited_once();
    const bool ordered = shape_.store == BackwardStore::kOrdered;
    if (!shape_.split && ordered) {
      choose_in_order(split_candidates(problem_, shape_, columns, workers_));
    } else {
      const BackwardSplit split = shape_.split ? *shape_.split : cheapest(columns);
      if (shape_.pass_ctas != 0 && can_do_passes(problem_, shape_)) give_passes_ctas(columns, split);
      split_by(split);
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
    const size_t tiles = result_.grid.rows.size();
    std::vector<int32_t> more(tiles + 1, 0);  // key tiles that come to a row tile, but not to the one before
    for (size_t i = 0; i < map.work.size(); ++i) {
      int32_t* const of_mask = more.data() + i / map.row_tiles * result_.row_tiles;
      for (const DeviceRun& run : std::span(map.runs).subspan(map.work[i].first_run, map.work[i].runs)) {
        ++of_mask[map.first_tile(run)];
        --of_mask[map.first_tile(run) + tiles_of(run)];
      }
    }
    result_.visited_once.resize(tiles);
    int32_t visits = 0;
    for (size_t tile = 0; tile < tiles; ++tile)
      result_.visited_once[tile] = (visits += more[tile]) == 1 ? 1 : 0;
    if (share_summed() > 1 - tuned::kLeastVisitedOnce) result_.visited_once.clear();
  }
  // The share of row tiles whose dq the pass after has to write.
  double share_summed() const {
    const std::vector<uint8_t>& once = result_.visited_once;
    return once.empty() ? 1 : std::ranges::count(once, 0) / static_cast<double>(once.size());
  }

  // CTAs that do passes are part of a candidate. If there are none, kernels before and after do all of them.
  BackwardSplit cheapest(const BackwardColumns& columns) const {
    const std::vector<BackwardSplit> splits = split_candidates(problem_, shape_, columns, workers_);
    if (splits.size() == 1) return splits.front();
    const bool passes = shape_.pass_ctas == kAsSuits && can_do_passes(problem_, shape_);
    const auto time_of = [&](const BackwardSplit& split) {
      if (!passes) return time_of_split(problem_, shape_, columns, split, workers_);
      const BackwardPassWork work = pass_work(columns, split);
      const int ctas = choose_pass_ctas(work);
      return time_of_split(problem_, shape_, columns, split, workers_ - ctas) +
             tiles_of_passes_alone(work, ctas > 0);
    };
    BackwardSplit best = splits.front();
    double least = time_of(best);
    for (const BackwardSplit& split : std::span(splits).subspan(1)) {
      const bool more_rounds = split.parts == best.parts && split.last_rounds > best.last_rounds;
      const double time = time_of(split);
      if (time < (more_rounds ? tuned::kBetterByRounds : 1) * least) best = split, least = time;
    }
    return best;
  }

  // The split is that of a plan in which all CTAs take items.
  void give_passes_ctas(const BackwardColumns& columns, const BackwardSplit& split) {
    int64_t ctas = shape_.pass_ctas;
    if (ctas == kAsSuits) ctas = choose_pass_ctas(pass_work(columns, split));
    result_.pass_ctas = static_cast<int32_t>(std::min(ctas, units_ / 2));
    workers_ = units_ - result_.pass_ctas;
  }

  BackwardPassWork pass_work(const BackwardColumns& columns, const BackwardSplit& split) const {
    const BackwardSharing sharing = sharing_of(problem_, shape_, split, columns.key_tiles, workers_);
    int64_t per_list = 0;
    for (const BackwardColumns::Column& column : columns.columns) per_list += parts_of(column.tiles, sharing);
    const BackwardJobs jobs{sections_of(problem_, shape_, split, per_list, workers_), result_.row_tiles};
    // Bytes before: o and do in 16 bits, and zeros in fp32 for dq unless it is stored. After: dq in fp32
    // and in 16 bits.
    const bool stored = shape_.store != BackwardStore::kAdded;
    return {.units = units_,
            .jobs = jobs,
            .section_items = jobs.heads_of(0) * per_list,
            .bytes_before = shape_.rows * problem_.head_dim * (stored ? 4 : 8),
            .bytes_after = static_cast<int64_t>(share_summed() * shape_.rows * problem_.head_dim * 6),
            .tiles = columns.tiles * problem_.heads_q};
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
  BackwardArrangement result_;
};

}  // namespace

BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape, int64_t units) {
  return Arranger(problem, shape, units).arrange();
}

}  // namespace longspan::sm90
