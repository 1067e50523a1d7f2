// A counter-based generator: the n-th number of a stream is a pure function of (seed, stream, n), so any
// process, thread or device can make any part of a tensor.
#pragma once

#include <array>
#include <cstdint>

#include "base/tensor.h"

namespace longspan {

// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Two independent standard normals from two 32-bit words (Box and Muller), the same on every machine to the
// last bit of a float up to the C library's log, cos and sin.
std::array<float, 2> box_muller(uint32_t a, uint32_t b);

// Fills a tensor with standard normals of stream `stream` of `seed`: element number e in [tokens, heads,
// head_dim] order is number e of the stream, whatever the strides, converted to the tensor's dtype. On all
// threads.
void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream);

}  // namespace longspan
