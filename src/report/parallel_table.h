// What became of the ranks' time, as a block of the terminal's table; inside report only.
#pragma once

#include <string>
#include <vector>

#include "report/results.h"

namespace longspan::report {

// Empty where no case was spread over ranks. `width`: columns to stay within; 0: no limit.
std::string format_parallel(const std::vector<const CaseRecord*>& cases, int width);

}  // namespace longspan::report
