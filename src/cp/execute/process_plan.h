// The plan of a strategy over processes with one rank each: this process's part.
#pragma once

#include <memory>

#include "cp/execute/parallel_kernel.h"

namespace longspan {

// forward() and backward() take whole tensors on `device`; every process gets the whole result.
std::unique_ptr<ParallelPlan> process_plan(const Kernel& kernel, const ParallelOptions& options,
                                           const Problem& problem, const Device& device, Direction until);

}  // namespace longspan
