// Where the tiles of the backward pass begin. Tiles of one size from the first token on would be cut by each
// boundary of a document; tiles that begin anew at such boundaries are fewer, and fewer of them are partly
// visible. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sm90/compiled_map.h"
#include "mask/mask.h"

namespace longspan::sm90 {

// The tokens of a tile, which never has more than its size.
struct TileExtent {
  int32_t first = 0, count = 0;
  friend bool operator==(const TileExtent&, const TileExtent&) = default;
};

struct BackwardGrid {
  CompiledMap map;               // of the transposed masks; columns count in tiles' sizes, not in tokens
  std::vector<TileExtent> rows;  // [masks, tiles of queries]
  std::vector<TileExtent> keys;  // [masks, map.row_tiles]
};

// `shape` has keys as rows, queries as columns. With `aligned`, tiles may begin where bands of their mask do,
// if there are fewer of them then. Masks of several heads may differ in their tiles: those of fewer end with
// some that have no tokens.
BackwardGrid lay_tiles(const HeadMasks& masks, TileShape shape, bool aligned);

}  // namespace longspan::sm90
