// What row tiles that begin where blocks of rows do would cost, and those that do not, estimated from a mask
// alone.
#pragma once

#include <cstdint>

#include "mask/mask.h"

namespace longspan::sm90 {

// Keys that row tiles visit, summed over these.
struct RowTileCosts {
  double even = 0, of_blocks = 0;
};

// Of a mask of rectangular bands, with row tiles of `tokens` rows. An even row tile in several blocks of rows
// visits the keys of all of them: as many as if blocks of keys were drawn independently. One of blocks may
// have few rows.
RowTileCosts row_tile_costs(const Mask& mask, int64_t tokens);

}  // namespace longspan::sm90
