// Estimates from masks how many keys even row tiles visit, and row tiles that begin at edges of blocks.
#pragma once

#include <cstdint>

#include "mask/mask.h"

namespace longspan {

// Keys visited, summed over masks and row tiles.
struct RowTileCosts {
  double even = 0, of_blocks = 0;
  double even_over_blocks() const { return of_blocks > 0 ? even / of_blocks : 1; }
};

// The masks have rectangular bands; row tiles have `tokens` rows. An even row tile that lies in several
// blocks visits the keys of all of them, estimated as if blocks of keys were drawn independently. A row tile
// at the end of a block may have few rows.
RowTileCosts row_tile_costs(const HeadMasks& masks, int64_t tokens);

}  // namespace longspan
