// The choice of the portable kernels' tiles for a problem and a GPU. Host code without CUDA.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "kernels/portable/shape.h"

namespace longspan::portable {

// Query heads of a GQA group that share a row tile: a power of two.
int choose_pack(const Problem& problem);

// The first instance in the order of tuning/generic.h that takes the head_dim and fits the device. head_dim
// must be a multiple of 8 up to 256.
ForwardShape choose_forward_shape(const Problem& problem, const Device& device);
BackwardShape choose_backward_shape(const Problem& problem, const Device& device);

// Heads (of `bytes` each) that are worked on together, so that their data stay in L2.
int32_t choose_section(int64_t heads, int64_t bytes, const Device& device);

// Segments of a KV head's rows, backward. Depends on sizes only; 1 where there are few tiles of keys or L2
// holds what the rows move.
int32_t choose_segments(const Problem& problem, const BackwardShape& shape, const Device& device);

// CTAs of the backward kernel that a multiprocessor has room for at a time.
int ctas_of_unit(const BackwardShape& shape, int capability);

// Bytes of shared memory that a CTA may have, by compute capability.
uint32_t most_shared_bytes(int capability);

}  // namespace longspan::portable
