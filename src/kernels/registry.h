// The table of the kernels that are Longspan's own.
#pragma once

#include <span>
#include <string_view>

#include "attention/kernel.h"

namespace longspan {

std::span<const Kernel* const> kernels();

// Those that make_plan() chooses from for "auto", the fastest first.
std::span<const Kernel* const> fast_kernels();

// What this build leaves out, and how to have it; empty if nothing.
std::string_view kernels_left_out();

// Throws an input error that lists the names if there is no such kernel.
const Kernel& kernel_from_name(std::string_view name, std::span<const Kernel* const> among = kernels());

}  // namespace longspan
