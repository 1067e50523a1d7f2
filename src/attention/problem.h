// The attention problem, declared in the public header.
#pragma once

#include "longspan/attention.h"
#include "mask/mask.h"

namespace longspan {

// The slopes of `heads` heads as the paper on ALiBi has them (Press et al., 2108.12409): a geometric sequence
// that ends at 2^-8.
std::vector<float> alibi_slopes(int64_t heads);

// Standard normal sinks for query heads, to try kernels with.
std::vector<float> drawn_sinks(int64_t heads, uint64_t seed);

}  // namespace longspan
