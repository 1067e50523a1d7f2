// A mask lowered to tiles, the only form of a mask that kernels read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mask/lowering/tile_piece.h"

namespace longspan {

struct TileShape {
  int32_t rows = 128, columns = 128;  // each 1..65535
  friend bool operator==(const TileShape&, const TileShape&) = default;
};

// Consecutive column tiles of one row tile, all of one kind. 8 bytes, so that a kernel reads it with one
// load.
//   full:    tiles `tile` .. `tile + count - 1`; every pair inside the mask's bounds is visible.
//   partial: one tile; its visible pairs are the union of the layers of Partial number `partial()`.
// A tile cut by the last row or column of the mask is full if all its pairs inside the mask are visible. The
// kernel masks columns past the end itself, since it knows the lengths.
struct Run {
  int32_t tile = 0;
  int32_t code = 0;  // > 0: full, this many tiles. <= 0: partial number -code

  bool full() const { return code > 0; }
  int32_t count() const { return code > 0 ? code : 1; }
  int32_t partial() const { return -code; }
  friend bool operator==(const Run&, const Run&) = default;
};

// The mask of a partial tile: `layers` consecutive layers starting at number `first`. A layer is shape.rows
// Spans, one per row. A pair is visible if any layer shows it, and no two layers show the same pair. Nearly
// every tile of nearly every mask has one layer. Equal partials are stored once: a causal diagonal needs one
// partial at any length.
struct Partial {
  int32_t first = 0, layers = 0;
  int64_t area = 0;  // visible pairs
  friend bool operator==(const Partial&, const Partial&) = default;
};

// The lowering of one mask at one tile shape. Row tile t covers rows [t * rows, (t + 1) * rows).
//
// The backward pass uses the lowering of the transposed mask: row tiles are then key tiles, columns are
// queries, and a Span is the interval of query rows that see a key.
struct TileMap {
  TileShape shape;
  int64_t rows = 0, columns = 0;  // of the mask
  std::vector<int64_t> offsets;  // [row_tiles + 1]: runs of row tile t are runs[offsets[t] .. offsets[t + 1])
  std::vector<Run> runs;         // by row tile, then by ascending tile
  std::vector<Partial> partials;
  std::vector<Span> spans;     // [layers, shape.rows]
  std::vector<int32_t> tiles;  // [row_tiles]: visited tiles of each row tile, its cost
  std::vector<int32_t> order;  // row tiles by descending cost, ties by index: the scheduling order
  int64_t area = 0;            // visible pairs

  int64_t row_tiles() const { return static_cast<int64_t>(tiles.size()); }
  int64_t column_tiles() const { return (columns + shape.columns - 1) / shape.columns; }
  std::span<const Run> runs_of(int64_t row_tile) const {
    return {runs.data() + offsets[row_tile], static_cast<size_t>(offsets[row_tile + 1] - offsets[row_tile])};
  }
  std::span<const Span> layer(int32_t number) const {
    return {spans.data() + int64_t{number} * shape.rows, static_cast<size_t>(shape.rows)};
  }
  size_t bytes() const {  // total size of all arrays
    const auto bytes_of = [](const auto& items) { return items.size() * sizeof(items[0]); };
    return bytes_of(offsets) + bytes_of(runs) + bytes_of(partials) + bytes_of(spans) + bytes_of(tiles) +
           bytes_of(order);
  }
  friend bool operator==(const TileMap&, const TileMap&) = default;
};

}  // namespace longspan
