// A plan whose passes run the portable kernels in the emulation, on tensors of the CPU.
#pragma once

#include <memory>

#include "attention/kernel.h"
#include "kernels/portable/shape.h"

namespace longspan::portable {

// Tiles are chosen as for a GPU of this compute capability; bf16 and f16 only.
std::unique_ptr<Plan> emulated_plan(const Problem& problem, int capability);

}  // namespace longspan::portable
