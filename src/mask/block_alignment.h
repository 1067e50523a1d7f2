// The block size of a block-sparse mask.
#pragma once

#include <cstdint>

#include "mask/mask.h"

namespace longspan {

// The largest block size, up to `largest`, to which all bands of all masks are aligned; a smaller power of
// two than `finest` if no such size fits. Both are powers of two. Returns 1 if a band has a diagonal bound,
// or if no mask has more than one band, since those are not block-sparse. Edges at the end of a mask count as
// aligned.
int64_t block_alignment(const HeadMasks& masks, int64_t finest, int64_t largest);

}  // namespace longspan
