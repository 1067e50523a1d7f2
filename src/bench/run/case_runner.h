// One case, from its value to its outcome: what happens inside the process of a case.
#pragma once

#include <string>

#include "bench/run/case_answer.h"
#include "bench/run/workbench.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"

namespace longspan::bench {

// What goes wrong in a way that the program survives is a status with its reason, not an exception.
// `single`: where the kernel is spread over ranks, the one inside, whose result on one device it is compared
// with.
CaseAnswer run_case(const Case& c, const TimingRule& rule, const Kernel& kernel, Testbed& testbed,
                    const Verify& verify, const Phase& phase, const Kernel* single = nullptr);

// Inputs and outputs of the case, in bytes.
size_t tensor_bytes(const Problem& problem, Direction direction);

}  // namespace longspan::bench
