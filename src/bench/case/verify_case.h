// Verifies a case: the fp64 oracle on the kernel's outputs, and the counting oracle.
#pragma once

#include "bench/case/workbench.h"

namespace longspan::bench {

Accuracy verify_case(const Subject& subject);

}  // namespace longspan::bench
