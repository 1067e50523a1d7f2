// cpu-flash: exact attention without the matrix of scores, tile by tile with an online softmax, on all
// threads. docs/kernels/cpu-flash.md explains it.
#pragma once

#include <memory>

#include "attention/kernel.h"
#include "kernels/cpu/gemm.h"

namespace longspan {

const Kernel& cpu_flash();

// The same plan with the library of matrix products given, for tests and comparisons.
std::unique_ptr<Plan> plan_cpu_flash(const Problem& problem, GemmLibrary library);

}  // namespace longspan
