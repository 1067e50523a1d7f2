// Shapes that portable_probe compares beside the planner's own, in bf16. Included before all else, by the
// compiler's -include.
#pragma once

#define LONGSPAN_PORTABLE_TRIALS
//   head_dim, rows, keys, warps, stages
#define LONGSPAN_PORTABLE_FORWARD_TRIALS                                                \
  {96, 128, 64, 4, 2}, {128, 128, 48, 4, 2}, {192, 64, 96, 4, 1}, {192, 64, 112, 4, 1}, \
      {192, 128, 96, 8, 1}, {192, 128, 128, 8, 1},
// Two CTAs of four warps fit on a multiprocessor where shared memory allows it.
//   head_dim, rows, keys, warps, key_groups, dq_rows, stages, parts, dq_parts, segments
#define LONGSPAN_PORTABLE_BACKWARD_TRIALS                                                                  \
  {64, 128, 128, 8, 4, 4, 2, 1}, {64, 128, 128, 4, 4, 4, 1, 4}, {64, 128, 64, 4, 2, 2, 1, 1},              \
      {64, 128, 96, 4, 2, 2, 1, 2}, {96, 128, 128, 8, 4, 4, 1, 1}, {96, 128, 64, 4, 2, 2, 1, 2},           \
      {96, 64, 64, 4, 2, 2, 2, 1}, {128, 128, 96, 8, 2, 2, 2, 1}, {128, 128, 64, 8, 2, 2, 2, 1},           \
      {192, 64, 64, 8, 2, 2, 2, 1}, {192, 128, 64, 8, 2, 2, 1, 1, 2}, {192, 64, 96, 8, 2, 2, 2, 1, 2},     \
      {192, 128, 96, 8, 2, 2, 1, 1, 2}, {192, 128, 96, 8, 2, 4, 1, 1, 2, 8}, {256, 64, 64, 8, 2, 2, 2, 1}, \
      {256, 128, 64, 8, 2, 2, 1, 1, 2},
