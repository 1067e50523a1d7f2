#include "kernels/sm90/backward/planner/schedule.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "kernels/plan/agenda.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr int32_t kTile = tuned::kTicksOfTile;  // times are in ticks

// Additions to one row tile of a query head.
struct Additions {
  int32_t last = -4 * kTile;  // time of the last one
  int32_t count = 0;
};

// kRecords: writes a BackwardSchedule.
template <bool kRecords>
class Simulation {
 public:
  Simulation(const CompiledMap& map, const BackwardItems& items, const BackwardWalk& walk,
             const SimulatedBy& by)
      : map_(map),
        items_(items),
        walk_(walk),
        by_(by),
        sections_(by.sections),
        hand_over_(by.streams > 1 ? tuned::kHandOverTicksOfStreams : tuned::kHandOverTicks),
        apart_(by.streams > 1 ? tuned::kApartTicksOfStreams : tuned::kApartTicks),
        all_items_(items.per_list * by.sections.heads_kv),
        workers_(std::min(by.workers, all_items_)),
        rows_of_head_(map.end_of_column_tiles() * by.sections.group),
        agenda_(workers_),
        added_(size_t{1} * by.sections.heads_kv * rows_of_head_),
        parts_(size_t{1} * by.sections.heads_kv * map.row_tiles),
        ctas_(workers_) {
    if constexpr (kRecords) lay_out();
  }

  // Runs to the end. Returns the time of all workers until then, in tiles.
  double run() {
    for (int32_t worker = 0; worker < workers_; ++worker) agenda_.add(worker, 0);
    int32_t end = 0;
    for (int32_t working = workers_; working > 0;) {
      const int32_t worker = agenda_.take();
      const int32_t now = agenda_.now();
      const int32_t then = step(ctas_[worker], now);
      if (then >= 0)
        agenda_.add(worker, then);
      else
        --working, end = std::max(end, now);
    }
    return static_cast<double>(end) / kTile * workers_;
  }

  BackwardSchedule result;
  std::vector<uint32_t> first_turn;  // [items.work]: where an item's turns begin
  // With `spread`: the runs of each item, and where they begin.
  std::vector<DeviceRun> runs;
  std::vector<uint32_t> first_run;

 private:
  struct Run {
    DeviceRun run;
    int32_t tile = 0;  // the run's first row tile
  };
  struct Cta {
    const BackwardWork* item = nullptr;
    int32_t index = -1, kv_head = 0;
    int32_t number = 0;          // of the current run
    int32_t tile = 0, left = 0;  // next row tile of the run, and how many are left
    int32_t head = 0, heads_at_once = 0;
    int32_t place = 0;  // of the item's first head in added_
    uint32_t turn = 0;
    std::vector<Run> order;  // with spread visits: the runs that are left lie behind `number`
  };

  void lay_out() {
    uint64_t turns = 0, mask_begin = 0;
    first_turn.reserve(items_.work.size());
    for (size_t i = 0; i < items_.work.size(); ++i) {
      // A KV head goes through one of its lists.
      if (i % items_.per_mask() == 0) mask_begin = turns;
      if (i % items_.per_list == 0) turns = mask_begin;
      first_turn.push_back(static_cast<uint32_t>(turns));
      turns += visits_of(map_, {&items_.work[i], 1});
    }
    if (!by_.per_head_masks) {
      result.of_head = static_cast<uint32_t>(turns);
      turns *= sections_.heads_kv;
    }
    LONGSPAN_CHECK(turns < uint64_t{1} << 31, "{} additions: at most 2^31 can be ordered", turns);
    result.streams = workers_;
    result.turns.resize(turns + kTurnsAtOnce);
    if (by_.spread) {
      uint32_t count = 0;
      for (const BackwardWork& item : items_.work)
        first_run.push_back(std::exchange(count, count + item.runs));
      runs.resize(count);
    }
    result.next.assign(all_items_, all_items_);
  }

  // Does the CTA's next step. Returns the time of the one after, or -1 if there is none.
  int32_t step(Cta& cta, int32_t now) {
    if (cta.item == nullptr) return take(cta, now);
    if (cta.head < cta.item->heads && cta.item->runs > 0) {
      if (cta.left == 0) begin_run(cta, now);  // now, since visits of other CTAs until now count
      return visit(cta, now);
    }
    // The item's end.
    if (cta.item->heads > 0 && cta.item->heads < sections_.group) {
      int32_t& parts = parts_[cta.kv_head * map_.row_tiles + cta.item->key_tile];
      if (parts < cta.item->part) return now + kTile / 2;
      ++parts;
      cta.item = nullptr;
      return now + tuned::kPartSumsTicks;
    }
    return take(cta, now);
  }

  // As BackwardItem of the kernel finds items.
  int32_t take(Cta& cta, int32_t now) {
    const int32_t index = taken_++;
    if constexpr (kRecords)
      if (cta.index >= 0) result.next[cta.index] = index;
    if (index >= all_items_) return -1;
    const int32_t per_section = sections_.section_heads * items_.per_list;
    const int32_t section = std::min(index / per_section, sections_.last_section);
    const int32_t inside = index - section * per_section, heads = sections_.heads_of(section);
    const int32_t position = inside / heads;
    cta.index = index;
    cta.kv_head = sections_.first_head(section) + inside - position * heads;
    const int32_t list = (by_.per_head_masks ? cta.kv_head * items_.per_mask() : 0) +
                         (section == sections_.last_section ? by_.last_list : 0);
    const size_t place = list + position;
    cta.item = &items_.work[place];
    if (cta.item->heads == 0) {
      cta.item = nullptr;
      return now + kTile / 2;
    }
    if constexpr (kRecords) cta.turn = first_turn[place] + result.of_head * cta.kv_head;
    cta.place = cta.kv_head * rows_of_head_ + cta.item->first_head;
    cta.number = 0;
    cta.head = 0;
    cta.heads_at_once = walk_.by_rows ? cta.item->heads : 1;
    if (by_.spread) {
      cta.order.clear();
      for (int32_t i = 0; i < cta.item->runs; ++i) {
        const int32_t number = walk_.descending ? cta.item->runs - 1 - i : i;
        const DeviceRun& run = map_.runs[cta.item->first_run + number];
        cta.order.push_back({run, map_.first_tile(run)});
      }
    }
    cta.left = 0;
    return now + tuned::kItemEndsTicks + (cta.item->runs > 0 ? 0 : kTile);
  }

  void begin_run(Cta& cta, int32_t now) {
    const BackwardWork& item = *cta.item;
    const bool spread = by_.spread;
    if (spread && cta.head == 0) choose_run(cta, now);
    const uint32_t at = walk_.descending ? item.runs - 1 - cta.number : cta.number;
    const DeviceRun& run = spread ? cta.order[cta.number].run : map_.runs[item.first_run + at];
    if (kRecords && spread) runs[first_run[&item - items_.work.data()] + at] = run;
    cta.left = tiles_of(run);
    cta.tile = map_.first_tile(run) + (walk_.descending ? cta.left - 1 : 0);
  }

  // The first run in the order of the map whose rows were not visited lately, else the one whose rows were
  // visited the longest ago.
  void choose_run(Cta& cta, int32_t now) const {
    const auto left = cta.order.begin() + cta.number;
    auto best = left;
    int32_t longest = std::numeric_limits<int32_t>::max();
    const auto end = left + std::min(cta.order.end() - left, std::ptrdiff_t{tuned::kMaxRunsLookedAt});
    for (auto run = left; run != end; ++run) {
      const int32_t last = added_[cta.place + run->tile * sections_.group].last;
      if (last < longest) longest = last, best = run;
      if (last <= now + kTile - apart_) break;
    }
    std::rotate(left, best, best + 1);
  }

  int32_t visit(Cta& cta, int32_t now) {
    int32_t at = cta.place + cta.tile * sections_.group + cta.head;
    for (int32_t h = 0; h < cta.heads_at_once; ++h, ++at) {
      Additions& rows = added_[at];
      now = std::max(now + kTile, rows.last + hand_over_);
      rows.last = now;
      if constexpr (kRecords) result.turns[cta.turn++] = rows.count++;
    }
    cta.tile += walk_.descending ? -1 : 1;
    if (--cta.left > 0) return now;
    if (++cta.number == cta.item->runs) {
      cta.head += cta.heads_at_once;
      cta.number = 0;
    }
    return now;
  }

  const CompiledMap& map_;
  const BackwardItems& items_;
  const BackwardWalk& walk_;
  const SimulatedBy& by_;
  const BackwardSections& sections_;
  const int32_t hand_over_, apart_;
  const int32_t all_items_, workers_;  // no more workers than items
  const int32_t rows_of_head_;         // row tiles of a KV head's query heads; 32 bits number those of all
  plan::Agenda agenda_;
  int32_t taken_ = 0;
  std::vector<Additions> added_;  // [kv_heads, row tiles, group]
  std::vector<int32_t> parts_;    // [kv_heads, key tiles]: parts that are done
  std::vector<Cta> ctas_;
};

}  // namespace

BackwardSchedule order_by_items(const CompiledMap& map, BackwardItems& items, bool descending) {
  const int64_t tiles = map.tiles(0, map.runs.size());
  LONGSPAN_CHECK(tiles < int64_t{1} << 32, "{} tiles: at most 2^32 can be ordered", tiles);
  const size_t key_tiles = map.row_tiles;
  BackwardSchedule result;
  result.turns.reserve(tiles + kTurnsAtOnce);
  std::vector<uint32_t> first(map.work.size());  // [masks, key tiles]: where a key tile's turns begin
  std::vector<int32_t> next(map.end_of_column_tiles());
  for (size_t of_mask = 0; of_mask < map.work.size(); of_mask += key_tiles) {
    std::ranges::fill(next, 0);
    for (const WorkRow& row : std::span(map.work).subspan(of_mask, key_tiles)) {
      first[of_mask + row.row_tile] = static_cast<uint32_t>(result.turns.size());
      for_each_row_tile(map, row, descending, [&](int32_t tile) { result.turns.push_back(next[tile]++); });
    }
  }
  result.turns.resize(result.turns.size() + kTurnsAtOnce);
  for (size_t i = 0; i < items.work.size(); ++i)
    items.work[i].first_turn = first[i / items.per_mask() * key_tiles + items.work[i].key_tile];
  return result;
}

BackwardSchedule schedule(CompiledMap& map, BackwardItems& items, const BackwardWalk& walk,
                          const SimulatedBy& by) {
  Simulation<true> simulation(map, items, walk, by);
  simulation.run();
  for (size_t i = 0; i < items.work.size(); ++i) items.work[i].first_turn = simulation.first_turn[i];
  if (by.spread) {
    map.runs = std::move(simulation.runs);
    for (size_t i = 0; i < items.work.size(); ++i) items.work[i].first_run = simulation.first_run[i];
  }
  return std::move(simulation.result);
}

double time_schedule(const CompiledMap& map, const BackwardItems& items, const BackwardWalk& walk,
                     const SimulatedBy& by) {
  int64_t visits = 0;
  for (size_t begin = 0; begin < items.work.size(); begin += items.per_mask())
    visits += visits_of(map, std::span(items.work).subspan(begin, items.per_list));
  if (!by.per_head_masks) visits *= by.sections.heads_kv;
  if (visits == 0) return 0;
  return Simulation<false>(map, items, walk, by).run() / static_cast<double>(visits);
}

}  // namespace longspan::sm90
