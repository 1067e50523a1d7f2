#include "kernels/portable/map.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "base/error.h"

namespace longspan::portable {
namespace {

// A run as kernels read it; its partial's layers are behind `first_layer`.
MapRun compiled(const TileMap& map, const Run& run, int32_t first_layer) {
  if (run.full()) return {run.tile, run.code, 0, 0};
  const Partial& partial = map.partials[static_cast<size_t>(run.partial())];
  return {run.tile, -(2 * (first_layer + partial.first) + (partial.layers > 1 ? 1 : 0)), partial.layers, 0};
}

// Appends a run, cut where the number of earlier visits of its column tiles changes.
void append_in_turns(const MapRun& run, std::vector<int32_t>& visits, std::vector<MapRun>& out) {
  for (int32_t t = run.tile; t < run.tile + std::max(run.code, 1); ++t) {
    const int32_t turn = visits[static_cast<size_t>(t)]++;
    if (t > run.tile && out.back().turn == turn)
      ++out.back().code;
    else
      out.push_back({t, std::min(run.code, 1), run.layers, turn});
  }
}

// Where the column tiles of a row tile, numbered in the order of its runs, are cut; 0 and their number, too.
std::vector<int64_t> cuts_of(const TileMap& map, int32_t tile, const Pieces& pieces, int64_t most) {
  const int64_t tiles = map.tiles[static_cast<size_t>(tile)];
  std::vector<int64_t> cuts = {0};
  if (pieces.segment > 0) {
    int64_t at = 0, last = 0;  // last: segment of the run before
    for (const Run& run : map.runs_of(tile)) {
      const int64_t first = run.tile, end = first + run.count();
      if (at > 0 && first / pieces.segment != last) cuts.push_back(at);
      for (int64_t next = (first / pieces.segment + 1) * pieces.segment; next < end; next += pieces.segment)
        cuts.push_back(at + next - first);
      at += run.count();
      last = (end - 1) / pieces.segment;
    }
  } else {
    const int64_t count = pieces_of(tiles, most);
    for (int64_t piece = 1; piece < count; ++piece) cuts.push_back(tiles * piece / count);
  }
  cuts.push_back(tiles);
  return cuts;
}

int64_t count_of(const MapRun& run) {
  return std::max(run.code, 1);
}

// Appends what is in [begin, end) of a row tile's column tiles, where the run's first one is number `at`.
void append_part(MapRun run, int64_t at, int64_t begin, int64_t end, std::vector<MapRun>& out) {
  const int64_t from = std::max(begin, at), to = std::min(end, at + count_of(run));
  if (from >= to) return;
  run.tile += static_cast<int32_t>(from - at);
  if (run.code > 0) run.code = static_cast<int32_t>(to - from);
  out.push_back(run);
}

// As Pieces::in_step says: runs above the multiple come first, since a walk goes from the last one to the
// first.
void walk_in_step(KernelMap& map) {
  const auto runs_of = [&](const MapRow& row) {
    return std::span(map.runs).subspan(row.first_run, static_cast<size_t>(row.runs));
  };
  int64_t period = 1;
  for (const MapRow& row : map.rows)
    if (const auto all = runs_of(row); !all.empty())
      period = std::max(period, all.back().tile + count_of(all.back()) - all.front().tile);
  std::vector<MapRun> runs;
  runs.reserve(map.runs.size() + map.rows.size());
  for (MapRow& row : map.rows) {
    const auto all = runs_of(row);
    const size_t first = runs.size();
    const int64_t end = all.empty() ? 1 : all.back().tile + count_of(all.back());
    const int64_t multiple = (end - 1) / period * period;
    for (const MapRun& run : all) append_part(run, run.tile, multiple, end, runs);
    for (const MapRun& run : all) append_part(run, run.tile, 0, multiple, runs);
    row.first_run = static_cast<uint32_t>(first);
    row.runs = static_cast<int32_t>(runs.size() - first);
  }
  map.runs = std::move(runs);
}

}  // namespace

int64_t pieces_of(int64_t tiles, int64_t most) {
  return most > 0 ? std::max<int64_t>(1, ceil_div(tiles, most)) : 1;
}

// As many as `most_more` more pieces than row tiles allow.
int64_t piece_tiles(const TileMap& map, const Pieces& pieces) {
  if (pieces.most_more == 0) return 0;
  int64_t most = std::max<int64_t>(pieces.tiles, 1);
  for (;; most += most / 8 + 1) {
    int64_t more = 0;
    for (const int32_t tiles : map.tiles) more += pieces_of(tiles, most) - 1;
    if (more <= pieces.most_more) return most;
  }
}

KernelMap compile_map(std::span<const TileMap> maps, bool in_turns, Pieces pieces) {
  LONGSPAN_CHECK(!maps.empty(), "a problem has at least one mask");
  if (in_turns) pieces = {};
  KernelMap out;
  const TileShape shape = maps.front().shape;
  out.row_tiles = static_cast<int32_t>(maps.front().row_tiles());
  out.items = out.row_tiles + pieces.most_more;
  out.rows_per_tile = shape.rows;
  for (const TileMap& map : maps) {
    LONGSPAN_CHECK(map.shape == shape && map.row_tiles() == out.row_tiles,
                   "tile maps of one problem differ in shape");
    const auto first_layer = static_cast<int32_t>(out.spans.size() / static_cast<size_t>(shape.rows));
    for (const Span& span : map.spans) out.spans.push_back(span.begin | uint32_t{span.end} << 16);
    const size_t first_row = out.rows.size();
    std::vector<int32_t> visits(in_turns ? static_cast<size_t>(map.column_tiles()) : 0);
    const int64_t most = pieces.segment > 0 ? 0 : piece_tiles(map, pieces);
    std::vector<std::pair<int64_t, int64_t>> ranks;  // segment, cost
    int32_t slots = 0;
    for (int32_t i = 0; i < out.row_tiles; ++i) {
      const int32_t tile = in_turns ? i : map.order[static_cast<size_t>(i)];
      const std::vector<int64_t> cuts = cuts_of(map, tile, pieces, most);
      const size_t count = cuts.size() - 1;
      for (size_t piece = 0; piece < count; ++piece) {
        const auto first_run = static_cast<uint32_t>(out.runs.size());
        const int64_t begin = cuts[piece], end = cuts[piece + 1];
        int64_t at = 0;
        for (const Run& run : map.runs_of(tile)) {
          const MapRun whole = compiled(map, run, first_layer);
          if (in_turns)
            append_in_turns(whole, visits, out.runs);
          else
            append_part(whole, at, begin, end, out.runs);
          at += run.count();
        }
        out.rows.push_back({tile, first_run, static_cast<int32_t>(out.runs.size() - first_run),
                            count > 1 ? slots : -1, static_cast<int32_t>(count)});
        const bool in_segment = pieces.segment > 0 && begin < end;
        ranks.emplace_back(in_segment ? out.runs[first_run].tile / pieces.segment : 0, end - begin);
      }
      if (count > 1) ++slots;
    }
    out.slots.push_back(slots);
    if (slots > 0 || pieces.segment > 0) {
      std::vector<MapRow> sorted(out.rows.begin() + static_cast<std::ptrdiff_t>(first_row), out.rows.end());
      std::vector<size_t> order(sorted.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranks[a] > ranks[b]; });
      for (size_t i = 0; i < order.size(); ++i) out.rows[first_row + i] = sorted[order[i]];
    }
    out.rows.resize(first_row + static_cast<size_t>(out.items), MapRow{-1, 0, 0, -1, 1});
  }
  if (pieces.in_step) walk_in_step(out);
  LONGSPAN_CHECK(out.runs.size() < std::numeric_limits<uint32_t>::max() &&
                     out.spans.size() / static_cast<size_t>(shape.rows) < size_t{1} << 30,
                 "{} runs and {} spans: a plan numbers at most 2^32 and 2^30 layers", out.runs.size(),
                 out.spans.size());
  return out;
}

}  // namespace longspan::portable
