// From a mask to its tile map.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mask/band_list.h"
#include "mask/lowering/tile_map.h"
#include "mask/lowering/tile_piece.h"
#include "mask/mask.h"

namespace longspan {

// Time and memory are O(visited tiles + rows of partial tiles). Empty tiles are not listed.
TileMap lower(const Mask& mask, TileShape shape);

// The lowering of mask.transposed(). The transpose is not materialised if tiles divide all blocks.
TileMap lower_transposed(const Mask& mask, TileShape shape);

// The first stage of lowering, which finds the visited tiles. Partial tiles are numbered in order; draw()
// fills them in, which takes most of the time.
struct TileSketch {
  TileMap map;                    // without partials and spans
  std::vector<TilePiece> pieces;  // pieces of all partial tiles, concatenated
  std::vector<size_t> ends;       // end of each partial tile's pieces, by its number
};
TileSketch sketch(const Mask& mask, TileShape shape);
// Takes disjoint, normalised bands in the order of a mask; they need not be a Mask yet.
TileSketch sketch(int64_t rows, int64_t columns, const BandList& bands, TileShape shape);
TileMap draw(TileSketch sketch);

}  // namespace longspan
