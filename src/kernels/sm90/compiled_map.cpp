#include "kernels/sm90/compiled_map.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longspan::sm90 {

int32_t CompiledMap::end_of(const WorkRow& row) const {
  if (row.runs == 0) return 0;
  const DeviceRun& last = runs[row.first_run + static_cast<uint32_t>(row.runs) - 1];
  return first_tile(last) + tiles_of(last);
}

int32_t CompiledMap::end_of_column_tiles() const {
  int32_t end = 0;
  for (const DeviceRun& run : runs) end = std::max(end, run.column + tiles_of(run) * columns_per_tile);
  return end / columns_per_tile;
}

int64_t CompiledMap::tiles(size_t first_run, size_t run_count) const {
  int64_t count = 0;
  for (const DeviceRun& run : std::span(runs).subspan(first_run, run_count)) count += tiles_of(run);
  return count;
}

CompiledMap compile(std::span<const TileMap> maps) {
  LONGSPAN_CHECK(!maps.empty(), "a problem has at least one mask");
  CompiledMap out;
  const TileShape shape = maps.front().shape;
  out.row_tiles = static_cast<int32_t>(maps.front().row_tiles());
  out.rows_per_tile = shape.rows;
  out.columns_per_tile = shape.columns;

  size_t runs = 0, spans = 0;
  for (const TileMap& map : maps) runs += map.runs.size(), spans += map.spans.size();
  LONGSPAN_CHECK(runs < std::numeric_limits<uint32_t>::max() && spans / shape.rows < size_t{kUnseenPart},
                 "{} runs and {} spans: a plan numbers at most 2^32 and 2^27 layers", runs, spans);
  out.work.reserve(maps.size() * out.row_tiles);
  out.runs.reserve(runs);
  out.spans.reserve(spans);

  std::vector<int32_t> codes;  // of this map's partial tiles
  for (const TileMap& map : maps) {
    LONGSPAN_CHECK(map.shape == shape && map.row_tiles() == out.row_tiles,
                   "tile maps of one problem differ in shape");
    const auto first_layer = static_cast<int32_t>(out.spans.size() / shape.rows);
    const auto first_run = static_cast<uint32_t>(out.runs.size());
    out.spans.insert(out.spans.end(), map.spans.begin(), map.spans.end());

    codes.resize(map.partials.size());
    for (size_t i = 0; i < map.partials.size(); ++i) {
      const Partial& partial = map.partials[i];
      if (partial.layers == 1) {
        codes[i] = partial_code(first_layer + partial.first, false);
      } else {
        codes[i] = partial_code(static_cast<int32_t>(out.partials.size()), true);
        out.partials.push_back({first_layer + partial.first, partial.layers});
      }
    }
    for (const Run& run : map.runs)
      out.runs.push_back({run.tile * shape.columns, run.full() ? run.code : codes[run.partial()]});
    for (const int32_t t : map.order)
      out.work.push_back({t, first_run + static_cast<uint32_t>(map.offsets[t]),
                          static_cast<int32_t>(map.offsets[t + 1] - map.offsets[t]), map.tiles[t]});
  }
  return out;
}

void mark_unseen_parts(CompiledMap& map) {
  constexpr size_t kPart = 64;
  const auto rows = static_cast<size_t>(map.rows_per_tile);
  LONGSPAN_CHECK(rows % kPart == 0 && rows <= 3 * kPart, "tiles of {} rows have no marks for parts", rows);
  std::vector<int32_t> of_layer(map.spans.size() / rows, 0);
  for (size_t first = 0; first < map.spans.size(); first += kPart)
    if (std::ranges::all_of(std::span(map.spans).subspan(first, kPart),
                            [](const Span& span) { return span.begin >= span.end; }))
      of_layer[first / rows] |= kUnseenPart << first % rows / kPart;
  for (DeviceRun& run : map.runs) {
    if (run.code > 0) continue;
    const int32_t number = ~run.code;
    DevicePartial layers{number, 1};
    if (number & kManyLayers) layers = map.partials[static_cast<size_t>(number & ~kManyLayers)];
    int32_t unseen = kUnseenParts;
    for (const int32_t marks : std::span(of_layer).subspan(layers.first, layers.layers)) unseen &= marks;
    if (unseen != ((1 << rows / kPart) - 1) * kUnseenPart) run.code = ~(number | unseen);
  }
}

}  // namespace longspan::sm90
