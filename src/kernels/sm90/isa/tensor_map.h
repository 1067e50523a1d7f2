// Tensor maps: how the copy engine sees q, k, v and o.
#pragma once

#include <cuda.h>

#include "base/tensor.h"

namespace longspan::sm90 {

// Boxes of `tokens` x `heads` rows of a tensor, each row head_dim elements in panels of 64, 128-byte
// swizzled: in shared memory [head_dim / 64][tokens][heads][64]. Coordinates: (0, head, token, panel).
CUtensorMap query_map(const TensorView& tensor, int tokens, int heads);

// The same, one panel a box.
CUtensorMap query_panel_map(const TensorView& tensor, int tokens, int heads);

// Boxes of `tokens` rows of one head: in shared memory [head_dim / 64][tokens][64]. Coordinates: (0, token,
// panel, head).
CUtensorMap key_map(const TensorView& tensor, int tokens);

// The same, one panel a box.
CUtensorMap key_panel_map(const TensorView& tensor, int tokens);

}  // namespace longspan::sm90
