// One case, from its value to its result line: what happens inside the child process.
#pragma once

#include <string>

#include "bench/run/workbench.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"
#include "record/results.h"

namespace longspan::bench {

// The keys of a case's line from `status` on. What goes wrong in a way that the program survives is a status
// with its reason, not an exception.
// `single`: where the kernel is spread over ranks, the one inside, whose result on one device it is compared
// with.
// A case that was skipped for a reason that holds for every case of its kernel has the key kAlways, which is
// for the runner.
inline constexpr const char* kAlways = "always";
Json run_case(const Case& c, const TimingRule& rule, const Kernel& kernel, Testbed& testbed,
              const Verify& verify, const Phase& phase, const Kernel* single = nullptr);

// Inputs and outputs of the case, in bytes.
size_t tensor_bytes(const Problem& problem, Direction direction);

}  // namespace longspan::bench
