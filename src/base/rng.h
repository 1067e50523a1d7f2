// A counter-based generator: the n-th number of a stream is a pure function of (seed, stream, n), so any
// process, thread or device can make any part of a tensor.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/philox.h"
#include "base/tensor.h"

namespace longspan {

// Fills a tensor with standard normals of stream `stream` of `seed`: element number e in [tokens, heads,
// head_dim] order is number e of the stream, whatever the strides, converted to the tensor's dtype. On all
// threads of the CPU.
void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream);

// The same on whatever device holds the tensor; the same numbers up to the last bit of a rounding. Finished
// when it returns.
void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream, const Device& device);

}  // namespace longspan
