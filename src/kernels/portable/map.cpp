#include "kernels/portable/map.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longspan::portable {
namespace {

// Appends a run, cut where the number of earlier visits of its column tiles changes.
void append_in_turns(const Run& run, int32_t code, std::vector<int32_t>& visits, std::vector<MapRun>& out) {
  for (int32_t t = run.tile; t < run.tile + run.count(); ++t) {
    const int32_t turn = visits[static_cast<size_t>(t)]++;
    if (t > run.tile && out.back().turn == turn)
      ++out.back().code;
    else
      out.push_back({t, run.full() ? 1 : code, turn});
  }
}

}  // namespace

KernelMap compile_map(std::span<const TileMap> maps, bool in_turns) {
  LONGSPAN_CHECK(!maps.empty(), "a problem has at least one mask");
  KernelMap out;
  const TileShape shape = maps.front().shape;
  out.row_tiles = static_cast<int32_t>(maps.front().row_tiles());
  out.rows_per_tile = shape.rows;
  for (const TileMap& map : maps) {
    LONGSPAN_CHECK(map.shape == shape && map.row_tiles() == out.row_tiles,
                   "tile maps of one problem differ in shape");
    const auto first_layer = static_cast<int32_t>(out.spans.size() / static_cast<size_t>(shape.rows));
    const auto first_partial = static_cast<int32_t>(out.partials.size());
    for (const Span& span : map.spans) out.spans.push_back(span.begin | uint32_t{span.end} << 16);
    for (const Partial& partial : map.partials)
      out.partials.push_back({first_layer + partial.first, partial.layers});
    std::vector<int32_t> visits(in_turns ? static_cast<size_t>(map.column_tiles()) : 0);
    for (int32_t i = 0; i < out.row_tiles; ++i) {
      const int32_t tile = in_turns ? i : map.order[static_cast<size_t>(i)];
      const auto first_run = static_cast<uint32_t>(out.runs.size());
      for (const Run& run : map.runs_of(tile)) {
        const int32_t code = run.full() ? run.code : -(first_partial + run.partial());
        if (in_turns)
          append_in_turns(run, code, visits, out.runs);
        else
          out.runs.push_back({run.tile, code, 0});
      }
      out.rows.push_back({tile, first_run, static_cast<int32_t>(out.runs.size() - first_run)});
    }
  }
  LONGSPAN_CHECK(out.runs.size() < std::numeric_limits<uint32_t>::max() &&
                     out.spans.size() / static_cast<size_t>(shape.rows) < size_t{1} << 30,
                 "{} runs and {} spans: a plan numbers at most 2^32 and 2^30 layers", out.runs.size(),
                 out.spans.size());
  return out;
}

}  // namespace longspan::portable
