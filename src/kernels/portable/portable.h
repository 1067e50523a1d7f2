// The kernel `portable`: exact attention for every mask on mma.sync, for GPUs of compute capability 8.0 and
// later.
#pragma once

#include "attention/kernel.h"

namespace longspan {

const Kernel& portable_kernel();

}  // namespace longspan
