// In which groups of heads a pass attends, one a stage: while one group is attended to, the next one's keys
// arrive and the last one's gradients leave. A head's result is complete in its stage, so nothing is merged.
#pragma once

#include <cstdint>
#include <vector>

#include "mask/mask.h"

namespace longspan {

// What a pass of the slowest rank would take, in seconds, were all of its heads one group.
struct PassEstimate {
  double attend_s = 0;
  double arrive_s = 0;  // before the first row can attend
  double leave_s = 0;   // after the last row has
};

// Ranges of KV heads in the order in which they attend, together all `heads` of them: those for which the
// pass should end first, few groups rather than many. Each lies in one range of `within`, if that is given.
std::vector<Range> stages_of(int64_t heads, const PassEstimate& pass, const std::vector<Range>& within = {});

// When such a pass would end.
double end_of(const std::vector<Range>& stages, int64_t heads, const PassEstimate& pass);

}  // namespace longspan
