// cpu-flash: exact attention in tiles with an online softmax, on all threads, without storing the scores
// matrix. See docs/kernels/cpu-flash.md.
#pragma once

#include <memory>

#include "attention/kernel.h"
#include "kernels/cpu/gemm.h"

namespace longspan {

const Kernel& cpu_flash();

// Makes the same plan with a given matrix product library, for tests and comparisons.
std::unique_ptr<Plan> plan_cpu_flash(const Problem& problem, GemmLibrary library);

}  // namespace longspan
