// Which devices the program has machine code for. Only for files that are built with CUDA.
#pragma once

#include <string>

#include "longspan/base.h"

namespace longspan::cuda {

// Why `device` cannot run `kernel`, the address of a __global__ function: "this build has no code for compute
// capability 7.5 (...)". Empty if it can, and if there is no such device here to ask.
std::string no_code_reason(const void* kernel, const Device& device);

}  // namespace longspan::cuda
