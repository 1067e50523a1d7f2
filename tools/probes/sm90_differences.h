// Compares large bf16 results on the GPU.
#pragma once

#include <cstdint>

namespace longspan {

// Adds to sums[0] the squares of a - b, to sums[1] those of b, to sums[2] the number of elements whose bits
// differ.
void add_differences(const void* a, const void* b, int64_t elements, double* sums);

}  // namespace longspan
