// Shapes that portable_probe compares beside the planner's own. Included before all else, by the compiler's
// -include.
#pragma once

#define LONGSPAN_PORTABLE_TRIALS
//   head_dim, rows, keys, warps, stages
#define LONGSPAN_PORTABLE_FORWARD_TRIALS {192, 64, 64, 4, 1}, {192, 128, 64, 8, 2},
//   head_dim, rows, keys, warps, key_groups, dq_rows, stages, parts
#define LONGSPAN_PORTABLE_BACKWARD_TRIALS                                                       \
  {64, 128, 128, 8, 4, 4, 2, 1}, {96, 128, 128, 8, 4, 4, 1, 1}, {128, 128, 128, 8, 4, 2, 1, 2}, \
      {192, 64, 64, 8, 2, 2, 2, 1},
