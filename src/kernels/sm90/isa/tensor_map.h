// Tensor maps: descriptors of q, k, v, o and do for TMA.
#pragma once

#include <cuda.h>

#include "longspan/base.h"

namespace longspan::sm90 {

// Throws an input error that names the tensor unless each token and head begins at a multiple of 16 bytes. A
// tensor that has a map needs no other check.
void check_alignment(const char* name, const TensorView& tensor);

// Boxes of `tokens` x `heads` rows of head_dim elements, in panels of 64 elements with the 128-byte swizzle.
// A box is [head_dim / 64][tokens][heads][64] in shared memory; its coordinates are (0, head, token, panel).
// Throws longspan::Error if the driver refuses the tensor.
CUtensorMap query_map(const TensorView& tensor, int tokens, int heads);

// The same, with one panel a box.
CUtensorMap query_panel_map(const TensorView& tensor, int tokens, int heads);

// Boxes of `tokens` rows of one head: [head_dim / 64][tokens][64] in shared memory; coordinates (0, token,
// panel, head).
CUtensorMap key_map(const TensorView& tensor, int tokens);

// The same, with one panel a box.
CUtensorMap key_panel_map(const TensorView& tensor, int tokens);

}  // namespace longspan::sm90
