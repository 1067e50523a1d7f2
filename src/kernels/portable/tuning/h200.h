// Shapes of the portable kernels on compute capability 9.0, measured on an H200: 64:8 heads, 8K tokens, bf16
// (results/nvidia-h200/2026-11-24-portable-shapes.txt and 2026-11-26-portable-shapes.txt). Other constants
// are those of generic.h.
#pragma once

#include "kernels/portable/shape.h"

namespace longspan::portable::h200 {

//   head_dim, rows, keys, warps, stages
inline constexpr ForwardShape kForwardShapes[] = {
    {64, 128, 64, 4, 2}, {96, 128, 64, 4, 1}, {128, 128, 64, 4, 2}, {192, 128, 96, 8, 2}, {256, 64, 64, 4, 1},
};
//   head_dim, rows, keys, warps, key_groups, dq_rows, stages, parts, dq_parts, segments
inline constexpr BackwardShape kBackwardShapes[] = {
    {64, 64, 128, 4, 4, 2, 1, 2},         // 65 KiB: two CTAs on a multiprocessor
    {96, 128, 128, 8, 4, 4, 2},           // 211 KiB
    {128, 64, 128, 8, 4, 2, 2},           // 162 KiB
    {192, 128, 96, 8, 2, 2, 1, 1, 2, 8},  // 217 KiB
    {256, 128, 64, 8, 2, 2, 1, 1, 2, 8},  // 225 KiB
};

}  // namespace longspan::portable::h200
