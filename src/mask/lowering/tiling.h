// Where the tiles of a mask lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mask/lowering/tile_map.h"
#include "mask/mask.h"

namespace longspan {

// Where row tiles begin: every shape.rows rows, or anew at each edge of a run of rows with the same bands, so
// that no row tile lies in two blocks or documents. If rows are left, the last row tile is lower; below a
// diagonal the first one, which sees the fewest keys, unless a tile's columns are a multiple of its rows.
enum class RowTiles : uint8_t { kEven, kOfBlocks };

struct Tiling {
  TileShape shape;
  int64_t rows = 0, columns = 0;  // of the mask
  // Column tiles begin at multiples of so many columns, a divisor of the tile's. That of a grid is
  // shape.columns. With a finer one, a row tile's tiles begin where its visible columns do, and anew after
  // each gap, so fewer are partial.
  int32_t alignment = 1;
  // Narrow tiles have so many columns. Two of them take the place of a tile and a rest that they can hold, at
  // the end of what a row tile sees. 0: there are none.
  int32_t narrow = 0;
  std::vector<int32_t> starts;  // [row tiles + 1]: their first rows, and the last one's end; empty: even

  static Tiling grid(int64_t rows, int64_t columns, TileShape shape);
  // Column tiles may begin anywhere.
  static Tiling flush(const Mask& mask, TileShape shape, RowTiles row_tiles);

  bool on_grid() const { return alignment == shape.columns; }
  // The columns of the first of the tiles that show `columns` columns.
  int32_t width_of_first(int64_t columns) const {
    return shape.columns < columns && columns <= int64_t{2} * narrow ? narrow : shape.columns;
  }
  int64_t row_tiles() const {
    return starts.empty() ? (rows + shape.rows - 1) / shape.rows : static_cast<int64_t>(starts.size()) - 1;
  }
  Range rows_of(int64_t row_tile) const {
    if (!starts.empty())
      return {starts[static_cast<size_t>(row_tile)], starts[static_cast<size_t>(row_tile) + 1]};
    return {row_tile * shape.rows, std::min((row_tile + 1) * shape.rows, rows)};
  }
  // The row tiles from `row_tile` on that end at row `until` or before.
  int64_t whole_until(int64_t row_tile, int64_t until) const {
    if (starts.empty()) return until / shape.rows - row_tile;
    const auto begin = starts.begin() + static_cast<std::ptrdiff_t>(row_tile) + 1;
    return std::upper_bound(begin, starts.end(), until) - begin;
  }
};

}  // namespace longspan
