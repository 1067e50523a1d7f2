#include "mask/lowering/tiling.h"

#include "base/error.h"
#include "mask/band_list.h"

namespace longspan {
namespace {

// Edges of runs of rows with the same bands.
std::vector<int32_t> edges_of_blocks(const Mask& mask) {
  std::vector<int32_t> edges = {0, static_cast<int32_t>(mask.rows())};
  for (const BandList::Group& group : mask.bands().groups()) {
    edges.push_back(group.q_begin);
    edges.push_back(group.q_end);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

// The first rows of row tiles that begin anew at each edge, and the end of the last one. The first or last
// one before the next edge may be lower.
std::vector<int32_t> starts_between(const std::vector<int32_t>& edges, int32_t rows_per_tile,
                                    bool low_first) {
  std::vector<int32_t> starts;
  starts.reserve(static_cast<size_t>(edges.back() / rows_per_tile) + edges.size());
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    int32_t row = edges[i];
    if (const int32_t low = (edges[i + 1] - row) % rows_per_tile; low_first && low > 0) {
      starts.push_back(row);
      row += low;
    }
    for (; row < edges[i + 1]; row += rows_per_tile) starts.push_back(row);
  }
  starts.push_back(edges.back());
  return starts;
}

}  // namespace

Tiling Tiling::grid(int64_t rows, int64_t columns, TileShape shape) {
  for (int32_t side : {shape.rows, shape.columns})
    LONGSPAN_CHECK(1 <= side && side <= 65535, "tile {} x {}: its sides must be 1 to 65535", shape.rows,
                   shape.columns);
  return {shape, rows, columns, shape.columns, 0, {}};
}

Tiling Tiling::flush(const Mask& mask, TileShape shape, RowTiles row_tiles) {
  Tiling tiling = grid(mask.rows(), mask.columns(), shape);
  tiling.alignment = 1;
  // A diagonal that lies in one tile of keys for each row tile stays so.
  const bool low_first = shape.columns % shape.rows != 0 && mask.bands().later_rows_see_more();
  if (row_tiles == RowTiles::kOfBlocks)
    tiling.starts = starts_between(edges_of_blocks(mask), shape.rows, low_first);
  else if (low_first && mask.rows() % shape.rows != 0)
    tiling.starts = starts_between({0, static_cast<int32_t>(mask.rows())}, shape.rows, true);
  return tiling;
}

}  // namespace longspan
