// Lowering to tile maps: a sweep over all row tiles, and what is simpler than a sweep.
#include "mask/lowering/lower.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "mask/chunks.h"
#include "mask/lowering/heaviest_first.h"
#include "mask/lowering/partial_table.h"
#include "mask/lowering/sweep.h"

namespace longspan {
namespace {

// There are fewer than 2^31 tokens, so 32-bit divisions suffice, which are faster.
int64_t floor_div(int64_t a, int64_t b) {
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

// Writes the runs of a map, for a Sweep.
class RunWriter {
 public:
  using Item = Run;
  static constexpr size_t kRoom = 32;
  using PartialItems = std::array<Run, 1>;

  RunWriter(int64_t row_tiles, TileMap& map) : map_(map) {
    map.tiles.reserve(static_cast<size_t>(row_tiles));
    map.offsets.reserve(static_cast<size_t>(row_tiles) + 1);
    map.offsets.push_back(0);
    runs_.reserve(4 * static_cast<size_t>(row_tiles));  // enough for many masks
  }

  void begin() { tiles_ = 0; }
  void push_full(int32_t tile, int32_t count) {
    runs_.push_back({tile, count});
    tiles_ += count;
  }
  void extend_full(int32_t count) {
    runs_.back().code += count;
    tiles_ += count;
  }
  void push_partial(int32_t tile, int32_t number) {
    runs_.push_back({tile, -number});
    tiles_ += 1;
  }
  void end() {
    map_.tiles.push_back(tiles_);
    map_.offsets.push_back(static_cast<int64_t>(runs_.size()));
  }
  Run* room() { return room_.data(); }
  void end(const Run* to, const ListSums& sums) {
    for (const Run* run = room_.data(); run != to; ++run) runs_.push_back({run->tile, run->code});
    tiles_ = sums.tiles;
    end();
  }
  void repeat(int64_t count) {
    for (const size_t runs = last_count(); count > 0; --count) {
      for (size_t i = 0; i < runs; ++i) runs_.push_back(Run(last_item(i)));
      end();
    }
  }
  std::vector<Run> take() { return runs_.take(); }

  ListSums sums() const { return sums_of_full(tiles_); }
  size_t count() const { return runs_.size() - static_cast<size_t>(map_.offsets.back()); }
  Run back() { return runs_.back(); }
  size_t last_count() const { return runs_.size() - static_cast<size_t>(map_.offsets.end()[-2]); }
  Run last_item(size_t i) { return runs_[static_cast<size_t>(map_.offsets.end()[-2]) + i]; }

  static ListSums sums_of_full(int32_t tiles) { return {tiles, 0}; }
  static ListSums sums_of_partial(int32_t) { return {1, 0}; }
  static PartialItems partial(int32_t number) { return {{{0, -number}}}; }
  static int32_t& place(Run& run) { return run.tile; }
  static size_t items_at(const Run&) { return 1; }

 private:
  TileMap& map_;
  Chunks<Run> runs_{size_t{1} << 17};
  std::array<Run, kRoom> room_;
  int32_t tiles_ = 0;  // of the last row tile
};

void set_order(TileMap& map) {
  map.order.resize(map.tiles.size());
  std::iota(map.order.begin(), map.order.end(), 0);
  sort_heaviest_first(std::span(map.order),
                      [&](int32_t t) { return static_cast<uint32_t>(map.tiles[static_cast<size_t>(t)]); });
}

TileMap empty_map(const Tiling& grid) {
  TileMap map;
  map.shape = grid.shape;
  map.rows = grid.rows;
  map.columns = grid.columns;
  return map;
}

TileMap sweep(const BandList& bands, const Tiling& grid, PartialNumbers& partials) {
  TileMap map = empty_map(grid);
  RunWriter writer(grid.row_tiles(), map);
  Sweep<RunWriter>(bands, grid, {0, grid.row_tiles(), 0, {}}, partials, writer).run();
  map.runs = writer.take();
  set_order(map);
  return map;
}

// The spans are drawn into thread-local memory: page faults on fresh memory would cost more than the drawing.
PartialTable& table_for(TileShape shape) {
  thread_local PartialTable table;
  table.begin(shape);
  return table;
}

// Numbers each partial tile that a sweep meets anew.
class SketchedPartials final : public PartialNumbers {
 public:
  explicit SketchedPartials(TileSketch& sketch) : sketch_(sketch) {}
  int32_t number_of(std::span<const TilePiece> pieces) override {
    sketch_.pieces.insert(sketch_.pieces.end(), pieces.begin(), pieces.end());
    sketch_.ends.push_back(sketch_.pieces.size());
    LONGSPAN_CHECK(sketch_.ends.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                   "a tile map of {} partial tiles", sketch_.ends.size());
    return static_cast<int32_t>(sketch_.ends.size()) - 1;
  }

 private:
  TileSketch& sketch_;
};

// Calls visit(row tile, first column tile, last column tile) for each row tile of each block of the
// transposed mask, from left to right within a row tile. Returns false at once if a block is not a multiple
// of the tile.
template <class Visit>
bool visit_transposed_blocks(const Mask& mask, TileShape shape, const Visit& visit) {
  const auto tiles_of = [](const Range& range, int64_t size, int64_t all) {
    const Range tiles{floor_div(range.begin, size), floor_div(range.end + size - 1, size)};
    const bool divided =
        tiles.begin * size == range.begin && (tiles.end * size == range.end || range.end == all);
    return divided ? tiles : Range{};
  };
  const BandList& bands = mask.bands();
  for (size_t group = 0; group < bands.groups().size(); ++group) {
    const Range rows{bands.groups()[group].q_begin, bands.groups()[group].q_end};
    const Range of_rows = tiles_of(rows, shape.columns, mask.rows());
    if (of_rows.empty()) return false;
    for (size_t i = bands.group_begin(group); i < bands.group_end(group); ++i) {
      const Range of_keys = tiles_of(bands.band(group, i).k, shape.rows, mask.columns());
      if (of_keys.empty()) return false;
      for (int64_t tile = of_keys.begin; tile < of_keys.end; ++tile)
        visit(static_cast<size_t>(tile), static_cast<int32_t>(of_rows.begin),
              static_cast<int32_t>(of_rows.end));
    }
  }
  return true;
}

// Blocks that are multiples of the tile lower to runs of full tiles. The bands are ordered by rows, so those
// of each column come in order: a counting pass, then a writing pass.
std::optional<TileMap> lower_transposed_blocks(const Mask& mask, TileShape shape) {
  if (!mask.bands().rectangular()) return std::nullopt;
  TileMap map = empty_map(Tiling::grid(mask.columns(), mask.rows(), shape));
  map.area = mask.area();
  const auto row_tiles = static_cast<size_t>(ceil_div(map.rows, shape.rows));
  map.tiles.assign(row_tiles, 0);
  map.offsets.assign(row_tiles + 1, 0);
  std::vector<int32_t> reach(row_tiles, -1);  // where the last run of each row tile ends
  if (!visit_transposed_blocks(mask, shape, [&](size_t tile, int32_t first, int32_t last) {
        map.offsets[tile + 1] += reach[tile] != first;
        map.tiles[tile] += last - first;
        reach[tile] = last;
      }))
    return std::nullopt;
  for (size_t tile = 0; tile < row_tiles; ++tile) map.offsets[tile + 1] += map.offsets[tile];
  map.runs.resize(static_cast<size_t>(map.offsets.back()));
  std::vector<int64_t> next(map.offsets.begin(), map.offsets.end() - 1);
  reach.assign(row_tiles, -1);
  visit_transposed_blocks(mask, shape, [&](size_t tile, int32_t first, int32_t last) {
    if (reach[tile] == first)
      map.runs[static_cast<size_t>(next[tile] - 1)].code += last - first;
    else
      map.runs[static_cast<size_t>(next[tile]++)] = {first, last - first};
    reach[tile] = last;
  });
  set_order(map);
  return map;
}

}  // namespace

// A map has at least a run, its offset, an order and a count for each row of tiles.
static void check_size(int64_t rows, TileShape shape) {
  constexpr double kBytesPerRow = 40;
  check_host_memory(
      kBytesPerRow * static_cast<double>(rows) / shape.rows,
      fmt::format("the tiles of {} x {} of a mask of {} rows", shape.rows, shape.columns, rows));
}

TileMap lower(const Mask& mask, TileShape shape) {
  const Tiling grid = Tiling::grid(mask.rows(), mask.columns(), shape);
  check_size(mask.rows(), shape);
  PartialTable& partials = table_for(shape);
  TileMap map = sweep(mask.bands(), grid, partials);
  map.area = mask.area();
  partials.take(map);
  return map;
}

TileMap lower_transposed(const Mask& mask, TileShape shape) {
  if (std::optional<TileMap> map = lower_transposed_blocks(mask, shape)) return *std::move(map);
  return lower(mask.transposed(), shape);
}

TileSketch sketch(const Mask& mask, TileShape shape) {
  return sketch(mask.rows(), mask.columns(), mask.bands(), shape);
}

TileSketch sketch(int64_t rows, int64_t columns, const BandList& bands, TileShape shape) {
  TileSketch sketch;
  SketchedPartials partials(sketch);
  sketch.map = sweep(bands, Tiling::grid(rows, columns, shape), partials);
  for (const Band& band : bands) sketch.map.area += band.area();
  return sketch;
}

TileMap draw(TileSketch sketch) {
  TileMap& map = sketch.map;
  PartialTable& partials = table_for(map.shape);
  for (Run& run : map.runs) {
    if (run.full()) continue;
    const auto number = static_cast<size_t>(run.partial());
    const size_t first = number == 0 ? 0 : sketch.ends[number - 1];
    run.code = -partials.number_of(std::span(sketch.pieces).subspan(first, sketch.ends[number] - first));
  }
  partials.take(map);
  return std::move(map);
}

}  // namespace longspan
