// The problems of sm90_backward_probe.
#pragma once

#include <vector>

#include "probe_case.h"

namespace longspan {

// Problems to check, and problems to time.
std::vector<Case> small_cases();
std::vector<Case> large_cases();

}  // namespace longspan
