// Where the tiles of the backward pass begin. On an even grid each boundary of a document would cut tiles.
// Tiles that begin anew at boundaries are fewer, and fewer of them are partial. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/compiled_map.h"
#include "mask/mask.h"

namespace longspan::sm90 {

// The tokens of a tile: at most as many as the tile shape has.
struct TileExtent {
  int32_t first = 0, count = 0;
  friend bool operator==(const TileExtent&, const TileExtent&) = default;
};

struct BackwardGrid {
  CompiledMap map;  // of the transposed masks; a column is a tile's number times its size, not a token
  std::vector<TileExtent> rows;  // [masks, tiles of queries]
  std::vector<TileExtent> keys;  // [masks, map.row_tiles]
};

// `shape` has keys as rows and queries as columns. If it is cheaper, tiles begin at edges of bands
// (`aligned`), or a low row tile comes first. Masks of one problem may differ in their number of tiles; those
// with fewer end with tiles of no tokens.
BackwardGrid lay_tiles(const HeadMasks& masks, TileShape shape, bool aligned);

}  // namespace longspan::sm90
