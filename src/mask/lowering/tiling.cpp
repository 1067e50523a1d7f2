#include "mask/lowering/tiling.h"

#include "base/error.h"
#include "mask/band_list.h"

namespace longspan {
namespace {

// The first rows of row tiles that begin anew at each edge of a run of rows, and the end of the last one.
std::vector<int32_t> starts_of_blocks(const Mask& mask, int32_t rows_per_tile) {
  std::vector<int32_t> edges = {0, static_cast<int32_t>(mask.rows())};
  for (const BandList::Group& group : mask.bands().groups()) {
    edges.push_back(group.q_begin);
    edges.push_back(group.q_end);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<int32_t> starts;
  starts.reserve(static_cast<size_t>(mask.rows() / rows_per_tile) + edges.size());
  for (size_t i = 0; i + 1 < edges.size(); ++i)
    for (int32_t row = edges[i]; row < edges[i + 1]; row += rows_per_tile) starts.push_back(row);
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
  if (row_tiles == RowTiles::kOfBlocks) tiling.starts = starts_of_blocks(mask, shape.rows);
  return tiling;
}

}  // namespace longspan
