// Shapes of the portable kernels on compute capability 9.0, measured on an H200: 64:8 heads, 8K tokens, bf16
// (results/nvidia-h200/2026-11-24-portable-shapes.txt). Other constants are those of generic.h.
#pragma once

#include "kernels/portable/shape.h"

namespace longspan::portable::h200 {

//   head_dim, rows, keys, warps, stages
inline constexpr ForwardShape kForwardShapes[] = {
    {64, 128, 64, 4, 2}, {96, 128, 64, 4, 1}, {128, 128, 64, 4, 2}, {192, 128, 64, 8, 1}, {256, 64, 64, 4, 1},
};
//   head_dim, rows, keys, warps, key_groups, dq_rows, stages, parts (1)
inline constexpr BackwardShape kBackwardShapes[] = {
    {64, 128, 128, 8, 4, 4, 1},  // 129 KiB
    {96, 64, 128, 8, 4, 4, 2},   // 129 KiB
    {128, 64, 128, 8, 4, 2, 2},  // 161 KiB
    {192, 64, 64, 8, 2, 2, 1},   // 112 KiB
    {256, 64, 64, 8, 2, 2, 2},   // 209 KiB
};

}  // namespace longspan::portable::h200
