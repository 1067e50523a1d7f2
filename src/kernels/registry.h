// The table of Longspan's own kernels, those that this build lacks among them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "attention/kernel_row.h"

namespace longspan {

std::span<const KernelRow> kernel_rows();

// Those of this build.
std::span<const Kernel* const> kernels();

// Those that make_plan() chooses from for "auto", the most preferred first, lacking ones among them.
std::vector<KernelRow> preferred_rows();

// Throws an input error where `among` has no such kernel: it lists the names or, where `rows` know why the
// kernel is lacking, says that.
const Kernel& kernel_from_name(std::string_view name, std::span<const Kernel* const> among = kernels(),
                               std::span<const KernelRow> rows = kernel_rows());

}  // namespace longspan
