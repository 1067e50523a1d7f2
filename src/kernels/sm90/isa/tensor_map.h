// Tensor maps: descriptors of q, k, v, o and do for TMA.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "longspan/base.h"

namespace longspan::sm90 {

// Of head_dim in a box: panels have 64 elements.
enum class Panels : uint8_t { kAll, kOne };

// Boxes of `tokens` x `heads` rows of head_dim elements, in panels with the 128-byte swizzle. A box is
// [panels][tokens][heads][64] in shared memory; its coordinates are (0, head, token, panel). Throws
// longspan::Error if the driver refuses the tensor.
CUtensorMap query_map(const TensorView& tensor, int tokens, int heads, Panels panels = Panels::kAll);

// Boxes of `tokens` rows of one head: [panels][tokens][64] in shared memory; coordinates (0, token, panel,
// head).
CUtensorMap key_map(const TensorView& tensor, int tokens, Panels panels = Panels::kAll);

}  // namespace longspan::sm90
