#include "kernels/portable/choose_pieces.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/ceil_div.h"
#include "kernels/plan/makespan.h"
#include "kernels/portable/tuning/generic.h"

namespace longspan::portable {
namespace {

bool is_window(const Problem& problem) {
  if (problem.masks->size() > 1) return false;
  const BandList& bands = problem.masks->front().bands();
  return bands.size() == 1 && (*bands.begin()).bounded();
}

// A KV head's work items by what they take, in visits of a tile of rows: the longest first.
using Items = std::map<double, int64_t, std::greater<>>;

std::vector<Items> items_of(const Pieces& pieces, const std::vector<TileMap>& maps) {
  std::vector<Items> out;
  for (const TileMap& map : maps) {
    Items& items = out.emplace_back();
    const int64_t most = piece_tiles(map, pieces);
    for (const int32_t tiles : map.tiles) {
      const int64_t count = pieces_of(tiles, most);
      const double sums = count > 1 ? generic::kPieceSums : 0;
      const double time = static_cast<double>(tiles) / static_cast<double>(count);
      items[time + generic::kItemEnds + sums] += count;
    }
  }
  return out;
}

// When the last of `ctas` is done, if `section` heads are worked on together. Heads share the items of one
// mask or have their own.
double end_of(const std::vector<Items>& items, int64_t heads_kv, int64_t section, int64_t ctas) {
  plan::Makespan makespan(ctas);
  for (int64_t first = 0; first < heads_kv; first += section) {
    Items together;
    for (int64_t head = first; head < std::min(first + section, heads_kv); ++head)
      for (const auto& [time, count] : items[static_cast<size_t>(head) % items.size()])
        together[time] += count;
    for (const auto& [time, count] : together) makespan.take(time, count);
  }
  return makespan.end();
}

}  // namespace

Pieces choose_pieces(const Problem& problem, const std::vector<TileMap>& maps, int32_t segments,
                     int64_t ctas) {
  const int64_t row_tiles = maps.front().row_tiles();
  if (segments > 1) {
    const int64_t columns = maps.front().column_tiles(), of_segment = ceil_div(columns, segments);
    const int64_t most = ceil_div(columns, of_segment);
    return {static_cast<int32_t>(row_tiles * (most - 1)), 0, static_cast<int32_t>(of_segment)};
  }
  int64_t visits = 0;
  for (const TileMap& map : maps)
    for (const int32_t tiles : map.tiles) visits += tiles;
  visits *= problem.heads_kv / static_cast<int64_t>(maps.size());
  const int64_t to_fill = generic::kPiecesPerCta * ctas / problem.heads_kv;
  Pieces best{.most_more = static_cast<int32_t>(std::max(row_tiles / 2, to_fill)),
              .tiles = std::max<int64_t>(visits, 1),  // whole
              .in_step = is_window(problem)};
  if (row_tiles * problem.heads_kv >= generic::kManyRounds * ctas) return best;
  const auto end = [&](const Pieces& pieces) {
    return end_of(items_of(pieces, maps), problem.heads_kv, problem.heads_kv, ctas);
  };
  double least = end(best);
  const double share = static_cast<double>(visits) / static_cast<double>(ctas);
  for (const double of_share : generic::kPiecesOfShare) {
    Pieces some = best;
    some.tiles = std::max(static_cast<int64_t>(std::ceil(share * of_share)), generic::kLeastPiece);
    if (const double time = end(some); time < generic::kBetter * least) least = time, best = some;
  }
  return best;
}

int32_t choose_backward_section(const Problem& problem, const Pieces& pieces,
                                const std::vector<TileMap>& maps, int64_t ctas) {
  if (pieces.segment > 0) return 1;
  const int64_t heads_kv = problem.heads_kv, row_tiles = maps.front().row_tiles();
  int64_t section = heads_kv;
  if (!problem.deterministic) {
    const std::vector<Items> items = items_of(pieces, maps);
    const double end = end_of(items, heads_kv, heads_kv, ctas) * (1 + generic::kSameEnd);
    const int64_t tiles = generic::kRoundsOfSection * ctas;
    section = std::clamp<int64_t>((tiles + row_tiles / 2) / row_tiles, 1, heads_kv);
    while (section < heads_kv && end_of(items, heads_kv, section, ctas) > end) section *= 2;
  }
  return static_cast<int32_t>(std::min(section, heads_kv));
}

}  // namespace longspan::portable
