// A kernel's plan for callers of the library: it checks what they pass, so a mistake is an Error, not a
// crash.
#pragma once

#include <memory>

#include "attention/kernel.h"

namespace longspan {

std::unique_ptr<Plan> checked_plan(const Kernel& kernel, const Problem& problem, const Device& device,
                                   Direction until);

}  // namespace longspan
