// The breakdown of the ranks' time, as a block of the terminal table. Internal to report.
#pragma once

#include <string>
#include <vector>

#include "report/results.h"

namespace longspan::report {

// Empty if no case was spread over ranks. `width`: the most columns to use; 0: no limit.
std::string format_parallel(const std::vector<const CaseRecord*>& cases, int width);

}  // namespace longspan::report
