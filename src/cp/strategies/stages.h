// Splits a pass into stages, one per group of heads. While one group attends, the keys of the next arrive and
// the gradients of the previous one leave. A head's result is complete in its stage, so nothing is merged.
#pragma once

#include <cstdint>
#include <vector>

#include "mask/mask.h"

namespace longspan {

// The estimated times of the slowest rank's pass, in seconds, with all heads in one group.
struct PassEstimate {
  double attend_s = 0;
  double arrive_s = 0;  // before the first row can attend
  double leave_s = 0;   // after the last row has attended
};

// Splits all `heads` KV heads into ranges, in the order in which they attend, so that the estimated end of
// the pass is earliest. A tie goes to fewer groups. Each range lies within one range of `within`, if given.
std::vector<Range> stages_of(int64_t heads, const PassEstimate& pass, const std::vector<Range>& within = {});

// The estimated time at which a pass with these stages ends.
double end_of(const std::vector<Range>& stages, int64_t heads, const PassEstimate& pass);

}  // namespace longspan
