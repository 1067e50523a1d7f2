#include "kernels/sm90/backward_tail.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.h"

namespace longspan::sm90 {
namespace {

// In tiles' times: what an item takes beside its tiles, and what it takes to add dk and dv to others'.
constexpr double kItem = 2.5, kSums = 1.5;
// Tiles of a part, and of what a block has to do.
constexpr int64_t kLeast = 8, kLeastShare = 100;
constexpr double kGain = 0.01;  // of the time, for which it is done
// What an item has to be able to keep its block longer than the others, of the time, for a run to be
// simulated.
constexpr double kLonger = 0.025;

int64_t tiles_of(const DeviceRun& run) {
  return std::max(run.code, 1);
}

class TailDivider {
 public:
  TailDivider(BackwardItems& items, BackwardGrid& grid, const BackwardTail& tail)
      : items_(items), runs_(grid.map.runs), tail_(tail), parts_(items.key_tiles.size(), 0) {}

  bool divide() {
    const auto first = items_.work.begin();
    const std::span<const BackwardWork> all(first, first + items_.per_list),
        before(items_.work.end() - items_.per_list, items_.work.end());
    const std::vector<int64_t> tiles = tiles_of_each(before);
    const int32_t last_heads = tail_.heads_kv - tail_.last_section * tail_.section_heads;
    int64_t left = last_heads * sum(tiles);
    const int64_t whole = left + (tail_.heads_kv - last_heads) * sum(tiles_of_each(all));
    const int64_t of_block = whole / tail_.workers, least = std::max(kLeast, of_block / kLeastShare);
    if (static_cast<double>(longest_beyond(tiles, left, last_heads)) <
        kLonger * static_cast<double>(of_block))
      return false;
    const double end = end_of(all, before);
    if (end < (1 + kGain) * static_cast<double>(of_block)) return false;
    const size_t runs_before = runs_.size();
    for (size_t i = 0; i < before.size(); ++i) {
      append(before[i], tiles[i], std::max(left / tail_.workers, least));
      left -= tiles[i] * last_heads;
    }
    if (list_.size() == before.size() || end_of(all, list_) > (1 - kGain) * end) {
      runs_.resize(runs_before);
      return false;
    }
    take_list();
    return true;
  }

 private:
  static int64_t sum(const std::vector<int64_t>& tiles) {
    int64_t sum = 0;
    for (const int64_t count : tiles) sum += count;
    return sum;
  }

  // By how many tiles an item may keep its block longer than what is left when it is taken keeps all of them.
  int64_t longest_beyond(const std::vector<int64_t>& tiles, int64_t left, int32_t heads) const {
    int64_t longest = 0;
    for (const int64_t count : tiles) {
      longest = std::max(longest, count - left / tail_.workers);
      left -= count * heads;
    }
    return longest;
  }

  std::vector<int64_t> tiles_of_each(std::span<const BackwardWork> list) const {
    std::vector<int64_t> tiles;
    tiles.reserve(list.size());
    for (const BackwardWork& item : list) {
      int64_t of_head = 0;
      for (int32_t r = 0; r < item.runs; ++r)
        of_head += sm90::tiles_of(runs_[item.first_run + static_cast<uint32_t>(r)]);
      tiles.push_back(of_head * item.heads);
    }
    return tiles;
  }

  // When all blocks have ended, in tiles' times, if sections use the one list and the last of them the other.
  double end_of(std::span<const BackwardWork> all, std::span<const BackwardWork> last) const {
    std::vector<double> free(static_cast<size_t>(tail_.workers),
                             0);  // a heap, the first block that is free on top
    double end = 0;
    const auto run = [&](std::span<const BackwardWork> list, const std::vector<double>& costs,
                         int32_t heads) {
      for (size_t i = 0; i < list.size(); ++i) {
        for (int32_t head = 0; head < heads; ++head) {
          const double done = free.front() + costs[i];
          sink(free, done);
          end = std::max(end, done);
        }
      }
    };
    const std::vector<double> of_all = costs_of(all);
    for (int32_t section = 0; section < tail_.last_section; ++section) run(all, of_all, tail_.section_heads);
    run(last, costs_of(last), tail_.heads_kv - tail_.last_section * tail_.section_heads);
    return end;
  }

  // Replaces a heap's least element.
  static void sink(std::vector<double>& heap, double value) {
    size_t at = 0;
    for (size_t child = 1; child < heap.size(); child = 2 * at + 1) {
      if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
      if (heap[child] >= value) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = value;
  }

  std::vector<double> costs_of(std::span<const BackwardWork> list) const {
    const std::vector<int64_t> tiles = tiles_of_each(list);
    std::vector<double> costs;
    costs.reserve(list.size());
    const bool divided = list.data() == list_.data();
    for (size_t i = 0; i < list.size(); ++i) {
      const auto tile = static_cast<size_t>(list[i].key_tile);
      const bool sums = items_.key_tiles[tile].parts > 1 || (divided && parts_[tile] > 1);
      costs.push_back(list[i].heads == 0 ? 0 : static_cast<double>(tiles[i]) + kItem + (sums ? kSums : 0));
    }
    return costs;
  }

  // The item, or its parts, of at most so many tiles: by heads as far as that will do.
  void append(const BackwardWork& item, int64_t tiles, int64_t most) {
    const int64_t wanted = (tiles + most - 1) / most;
    int32_t by_heads = 1;
    while (by_heads < item.heads && (by_heads < wanted || item.heads % by_heads != 0)) ++by_heads;
    const int64_t of_part = tiles / by_heads;
    const int64_t by_rows = by_heads < item.heads ? 1 : std::max<int64_t>((of_part + most - 1) / most, 1);
    BackwardWork part = item;
    part.heads = item.heads / by_heads;
    for (int32_t h = 0; h < by_heads; ++h) {
      part.first_head = item.first_head + h * part.heads;
      for (int64_t r = 0; r < by_rows; ++r) {
        if (by_rows > 1) cut(item, of_part * r / by_rows, of_part * (r + 1) / by_rows, part);
        part.part = parts_[static_cast<size_t>(item.key_tile)]++;
        list_.push_back(part);
      }
    }
  }

  // Gives the part the item's tiles from `begin` to `end`.
  void cut(const BackwardWork& item, int64_t begin, int64_t end, BackwardWork& part) {
    part.first_run = static_cast<uint32_t>(runs_.size());
    int64_t first = 0;  // of the run
    for (int32_t r = 0; r < item.runs; ++r) {
      const DeviceRun run = runs_[item.first_run + static_cast<uint32_t>(r)];
      const int64_t count = sm90::tiles_of(run), from = std::max(begin - first, int64_t{0}),
                    to = std::min(end - first, count);
      first += count;
      if (from >= to) continue;
      runs_.push_back({run.column + static_cast<int32_t>(from) * tail_.rows,
                       run.code > 0 ? static_cast<int32_t>(to - from) : run.code});
    }
    part.runs = static_cast<int32_t>(runs_.size() - part.first_run);
  }

  void take_list() {
    std::vector<BackwardWork> work(items_.work.begin(), items_.work.begin() + items_.per_list);
    work.resize(list_.size());  // what is missing has no heads
    items_.per_list = static_cast<int32_t>(list_.size());
    items_.lists = 2;
    work.insert(work.end(), list_.begin(), list_.end());
    items_.work = std::move(work);
    for (size_t tile = 0; tile < parts_.size(); ++tile)
      items_.key_tiles[tile].parts = std::max(items_.key_tiles[tile].parts, parts_[tile]);
    items_.shared = true;
  }

  BackwardItems& items_;
  std::vector<DeviceRun>& runs_;
  const BackwardTail& tail_;
  std::vector<BackwardWork> list_;
  std::vector<int32_t> parts_;  // of key tiles, in that list
};

}  // namespace

bool divide_tail(BackwardItems& items, BackwardGrid& grid, const BackwardTail& tail) {
  LONGSPAN_CHECK(grid.map.work.size() == static_cast<size_t>(grid.map.row_tiles),
                 "{} key tiles in a map of {}: items of several masks have no last list for all heads",
                 grid.map.work.size(), grid.map.row_tiles);
  return items.per_list > 0 && TailDivider(items, grid, tail).divide();
}

}  // namespace longspan::sm90
