// How many CTAs of the backward kernel do the passes before and after it (planner/jobs.h), if any. A pure
// function with measured constants. Host code without CUDA.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// The work of one launch.
struct BackwardPassWork {
  int64_t units = 0;                          // SMs
  int64_t sections = 0;                       // of heads
  int64_t section_items = 0;                  // of the first section
  int64_t jobs_before = 0, jobs_after = 0;    // BackwardJobs
  int64_t jobs = 0;                           // of each pass, wherever they are done
  int64_t bytes_before = 0, bytes_after = 0;  // read and written by one such job
  int64_t tiles = 0;                          // visits to tiles, of all query heads
  double share_last = 0;                      // of the tiles: the last section's
  bool claimed = true;                        // the first CTA to come stores dq; else all add to zeros
};

// 0: separate kernels do the passes faster.
int choose_pass_ctas(const BackwardPassWork& work);

// The time of the passes that kernels of their own do, in tiles: all, or with pass CTAs those that come first
// and last.
double tiles_of_passes_alone(const BackwardPassWork& work, bool with_pass_ctas);

}  // namespace longspan::sm90
