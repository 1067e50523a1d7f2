// Shapes that portable_probe compares beside the planner's own, in bf16. Included before all else, by the
// compiler's -include. None of them spills on compute capability 9.0.
#pragma once

#define LONGSPAN_PORTABLE_TRIALS
//   head_dim, rows, keys, warps, stages
#define LONGSPAN_PORTABLE_FORWARD_TRIALS                                                                     \
  {96, 128, 64, 4, 2}, {192, 64, 64, 4, 1}, {192, 64, 32, 4, 2}, {192, 128, 64, 8, 2}, {192, 128, 32, 8, 2}, \
      {192, 128, 96, 8, 1}, {256, 64, 32, 4, 2},
// Two CTAs of four warps fit on a multiprocessor where shared memory allows it.
//   head_dim, rows, keys, warps, key_groups, dq_rows, stages, parts
#define LONGSPAN_PORTABLE_BACKWARD_TRIALS                                                         \
  {64, 128, 128, 8, 4, 4, 2, 1}, {64, 64, 128, 8, 4, 2, 2, 1}, {64, 64, 96, 4, 2, 2, 1, 1},       \
      {64, 128, 96, 4, 2, 2, 1, 2}, {64, 64, 128, 4, 4, 2, 1, 2}, {64, 128, 64, 4, 2, 2, 1, 1},   \
      {96, 128, 128, 8, 4, 4, 1, 1}, {96, 128, 128, 8, 4, 4, 1, 2}, {96, 128, 64, 4, 2, 2, 1, 2}, \
      {96, 64, 64, 4, 2, 2, 2, 1}, {96, 64, 96, 4, 2, 2, 1, 2}, {128, 128, 96, 8, 2, 2, 1, 1},    \
      {128, 64, 64, 4, 2, 1, 1, 1}, {128, 128, 64, 8, 2, 4, 2, 1}, {128, 128, 64, 8, 2, 2, 1, 1}, \
      {192, 64, 64, 8, 2, 2, 2, 1}, {192, 64, 64, 8, 2, 4, 2, 1}, {192, 128, 64, 8, 2, 2, 1, 1},  \
      {256, 64, 64, 8, 2, 1, 2, 1},
