// The element-wise steps between the matrix products of gpu-naive.
#pragma once

#include <string>

#include "kernels/gpu_naive/device_tile_map.h"
#include "longspan/base.h"

namespace longspan::naive_gpu {

// Square intermediates of several query heads: [heads, rows, row_stride], with `columns` valid elements per
// row.
struct Square {
  void* data = nullptr;
  int64_t heads = 0, rows = 0, row_stride = 0;
};

// probability = softmax(scale * score) over the visible columns; lse [heads, rows]. A row without visible
// keys gives lse = -inf. Hidden elements are not written: zero the buffer first.
void softmax(const Square& score, const Square& probability, DType probability_dtype, float* lse,
             const TileMapView& map, float scale, Stream stream);

// probability = exp(scale * score - lse): recomputes the probabilities from the forward pass's lse.
void recompute_probability(const Square& score, const Square& probability, DType probability_dtype,
                           const float* lse, const TileMapView& map, float scale, Stream stream);

// probability <- scale * probability * (dp - delta): the gradient of the unscaled scores, in place.
void score_gradient(const Square& dp, const Square& probability, DType probability_dtype, const float* delta,
                    const TileMapView& map, float scale, Stream stream);

// delta[head, token] = sum over head_dim of o * dout, less dlse[head, token] if that is not null. o [tokens,
// heads, head_dim] may be f32 even if dout is not.
void row_delta(const TensorView& o, const TensorView& dout, const float* dlse, float* delta, Stream stream);

// to <- from (f32, contiguous [tokens, head_dim]), rounded to the dtype of `to`, which has one head.
void round_to(const TensorView& to, const float* from, Stream stream);

// Empty if this build has machine code for the device; otherwise the reason.
std::string no_code_reason(const Device& device);

}  // namespace longspan::naive_gpu
