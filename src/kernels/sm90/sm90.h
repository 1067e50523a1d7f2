// The kernel `sm90`: one exact attention kernel for every mask, on Hopper GPUs.
#pragma once

#include "attention/kernel.h"

namespace longspan {

const Kernel& sm90_kernel();

}  // namespace longspan
