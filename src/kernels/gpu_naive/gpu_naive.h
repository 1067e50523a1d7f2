// gpu-naive: a readable reference on a GPU. It materialises the scores of one query head (several if they are
// small), with cuBLAS for the products and the tile map for the mask. Memory is O(tokens_q * tokens_kv), so
// long sequences do not fit.
#pragma once

#include "attention/kernel.h"

namespace longspan {

const Kernel& gpu_naive();

}  // namespace longspan
