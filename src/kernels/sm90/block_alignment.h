// The block size of a block-sparse mask.
#pragma once

#include <cstdint>

#include "mask/mask.h"

namespace longspan::sm90 {

inline constexpr int64_t kFinestBlock = 64;    // the smallest blocks that have tiles of their own
inline constexpr int64_t kLargestBlock = 128;  // blocks of a multiple of this size need no finer tiles

// The largest block size, up to kLargestBlock, to which all bands of all masks are aligned; a smaller power
// of two than kFinestBlock if no such size fits. Returns 1 if a band has a diagonal bound, or if no mask has
// more than one band, since those are not block-sparse. Edges at the end of a mask count as aligned.
int64_t block_alignment(const HeadMasks& masks);

}  // namespace longspan::sm90
