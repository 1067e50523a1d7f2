// gpu-naive: the readable reference on a GPU. It materialises the scores of a query head (several, where they
// are small), with cuBLAS for the products and the tile map for the mask; memory O(tokens_q * tokens_kv), so
// that long sequences do not fit.
#pragma once

#include "attention/kernel.h"

namespace longspan {

const Kernel& gpu_naive();

}  // namespace longspan
