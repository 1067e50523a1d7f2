// fill_normal of base/rng.h for a tensor in GPU memory.
#pragma once

#include <cstdint>

#include "longspan/base.h"

namespace longspan::cuda {

void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream, int index);

}  // namespace longspan::cuda
