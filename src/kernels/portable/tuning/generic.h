// The constants by which the portable kernels' planner chooses, for every GPU. None is measured yet: tiles
// are those of FlashAttention-2 where they fit, bounded by registers and by the shared memory of compute
// capability 8.6. A GPU that is measured gets a copy of this file.
#pragma once

#include "kernels/portable/shape.h"

namespace longspan::portable::generic {

// In order of preference for a head_dim. Each is compiled for both dtypes.
//   head_dim, rows, keys, warps
inline constexpr ForwardShape kForwardShapes[] = {
    {64, 128, 64, 4}, {96, 128, 64, 4}, {128, 128, 64, 4}, {192, 128, 64, 8}, {256, 64, 64, 4},
};
//   head_dim, rows, keys, warps, halves, stages, dq_rows
inline constexpr BackwardShape kBackwardShapes[] = {
    {64, 64, 128, 8, 1, 2, 2},   // 80 KiB
    {96, 64, 128, 8, 1, 1, 4},   // 88 KiB
    {128, 64, 128, 8, 1, 2, 2},  // 144 KiB: not on 8.6, 8.9 and 12.x
    {128, 64, 64, 4, 1, 1, 2},   // 72 KiB
    {192, 32, 64, 8, 2, 1, 2},   // 80 KiB
    {256, 32, 64, 8, 2, 1, 2},   // 104 KiB: not on 8.6, 8.9 and 12.x
    {256, 32, 32, 4, 2, 1, 2},   // 68 KiB
};

// Query heads of a GQA group that share a row tile, at most: 16 tokens are left of 128 rows, as in sm90.
inline constexpr int kMostPack = 8;

// K and V of a section of heads (backward: Q, dO and dQ) take at most this share of L2, as in sm90.
inline constexpr int64_t kSectionL2Divisor = 2;

}  // namespace longspan::portable::generic
