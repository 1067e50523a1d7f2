// counting_tensors.h for dense tensors in the memory of a CUDA device.
#pragma once

#include <vector>

#include "base/tensor.h"

namespace longspan::cuda {

void write_slots(const TensorView& tensor, int64_t first, int64_t slots);
void write_first_elements(const TensorView& tensor, const std::vector<double>& values);  // [tokens, heads]
int64_t first_nonzero(const TensorView& tensor);  // its place in memory; -1 if there is none

}  // namespace longspan::cuda
