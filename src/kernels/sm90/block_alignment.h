// How the blocks of block-sparse masks fit tiles.
#pragma once

#include <cstdint>

#include "mask/mask.h"

namespace longspan::sm90 {

inline constexpr int64_t kFinestBlock = 64;    // the smallest blocks that have tiles of their own
inline constexpr int64_t kLargestBlock = 128;  // blocks of a multiple of this need no finer tiles

// The largest block size, up to kLargestBlock, to which every band of every mask is aligned; less than
// kFinestBlock where none fits, 1 where there is a band with a diagonal bound, or one rectangle only, which
// is no block-sparse mask. Ends at the mask's own ends are aligned to anything.
int64_t block_alignment(const HeadMasks& masks);

}  // namespace longspan::sm90
