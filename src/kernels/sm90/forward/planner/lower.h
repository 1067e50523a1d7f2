// Lowers masks to the forward kernel's map. Host code without CUDA.
#pragma once

#include "kernels/sm90/forward/planner/map.h"
#include "mask/lowering/tiling.h"
#include "mask/mask.h"

namespace longspan::sm90 {

// The map of a problem's masks: one mask, or one for each KV head, all of the same number of rows. Tiles have
// shape.columns keys, a multiple of kStepKeys up to 16 steps, and at most kMostTileRows rows; throws
// longspan::Error for other shapes, and for masks that need more entries or spans than 32 bits can number.
// The memory of `map` is reused: the first touch of fresh pages takes longer than lowering does.
ForwardMap lower_forward(const HeadMasks& masks, TileShape shape, RowTiles row_tiles = RowTiles::kEven,
                         ForwardMap map = {});

}  // namespace longspan::sm90
