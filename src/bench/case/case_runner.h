// Runs one case, inside the process of the case.
#pragma once

#include <string>

#include "bench/case/case_answer.h"
#include "bench/case/workbench.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"

namespace longspan::bench {

// A failure that the program survives becomes a status with a reason, not an exception. `single`: the kernel
// that `kernel` spreads over ranks, whose result on one device is the reference. Null if `kernel` is not
// spread.
CaseAnswer run_case(const Case& c, const TimingRule& rule, const Kernel& kernel, Testbed& testbed,
                    const Verify& verify, const Phase& phase, const Kernel* single = nullptr);

// Inputs and outputs of the case, in bytes.
size_t tensor_bytes(const Problem& problem, Direction direction);

}  // namespace longspan::bench
