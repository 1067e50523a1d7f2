// The functions of counting_tensors.h for dense tensors in CUDA memory.
#pragma once

#include <vector>

#include "longspan/base.h"

namespace longspan::cuda {

void write_slots(const TensorView& tensor, int64_t first, int64_t slots);
void write_first_elements(const TensorView& tensor, const std::vector<double>& values);  // [tokens, heads]
int64_t first_nonzero(const TensorView& tensor);  // index in memory order; -1 if all are 0

}  // namespace longspan::cuda
