// The problems of sm90_backward_probe.
#pragma once

#include <vector>

#include "probe_case.h"

namespace longspan {

// To be checked, and to be timed.
std::vector<Case> small_cases();
std::vector<Case> large_cases();

}  // namespace longspan
