// How many blocks of the backward kernel do the passes before and after it (planner/jobs.h), and whether any
// do. A pure rule with what was measured. Host code without CUDA.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// What there is to do, of one launch.
struct BackwardPassWork {
  int64_t units = 0;                          // multiprocessors
  int64_t sections = 0;                       // of heads
  int64_t section_items = 0;                  // of the first one
  int64_t jobs_before = 0, jobs_after = 0;    // BackwardJobs
  int64_t bytes_before = 0, bytes_after = 0;  // that one such job reads and writes
  int64_t tiles = 0;                          // of rows and keys, of all query heads
  double share_last = 0;                      // of the tiles, of the last section
  bool claimed = true;  // sums of dq are stored by the first to come; else added to zeros
};

// 0: the passes are better kernels of their own.
int choose_pass_ctas(const BackwardPassWork& work);

}  // namespace longspan::sm90
