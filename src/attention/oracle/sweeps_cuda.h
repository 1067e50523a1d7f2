// Sums over whole tensors in GPU memory; copying gigabytes to the host would take longer than the
// measurements. For dense tensors on the current device. Returns when the sums are done.
#pragma once

#include <utility>

#include "longspan/base.h"

namespace longspan {

// The sums of (a - b)^2 and of b^2 over all elements, identical on every run.
std::pair<double, double> squares_cuda(const TensorView& a, const TensorView& b);

}  // namespace longspan
