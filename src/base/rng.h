// A counter-based generator: number n of a stream is a pure function of (seed, stream, n), so any process,
// thread or device can generate any part of a tensor.
#pragma once

#include <cstdint>

#include "base/philox.h"
#include "longspan/base.h"

namespace longspan {

// Fills a host tensor with standard normals of stream `stream` of `seed`, using all CPU threads. Element e in
// [tokens, heads, head_dim] order is number e of the stream whatever the strides, converted to the tensor's
// dtype.
void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream);

// Fills a tensor on any device with the same numbers, up to the last bit of a rounding. Returns when it is
// done.
void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream, const Device& device);

}  // namespace longspan
