// Sums over whole tensors in a GPU's memory: copying gigabytes to the host takes longer than all that is
// measured. Dense tensors, on the calling thread's device; finished on return.
#pragma once

#include <utility>

#include "base/tensor.h"

namespace longspan {

// The sums of (a - b)^2 and of b^2 over all elements, the same on every run.
std::pair<double, double> squares_cuda(const TensorView& a, const TensorView& b);

}  // namespace longspan
