// The element-wise steps between the matrix products of gpu-naive.
#pragma once

#include <string>

#include "attention/score.h"
#include "kernels/gpu_naive/device_tile_map.h"
#include "longspan/base.h"

namespace longspan::naive_gpu {

// Square intermediates of several query heads: [heads, rows, row_stride], with `columns` valid elements per
// row.
struct Square {
  void* data = nullptr;
  int64_t heads = 0, rows = 0, row_stride = 0;
};

// How the scores of several query heads come from products q k.
struct Scoring {
  float scale = 1;
  ScoreRule<float> rule;          // without a slope
  const float* slopes = nullptr;  // [heads], in device memory; null: no ALiBi

  constexpr ScoreRule<float> of_head(int64_t head) const {
    ScoreRule<float> of = rule;
    of.slope = slopes == nullptr ? 0 : slopes[head];
    return of;
  }
};

// probability = softmax(score of the product) over the visible columns; lse [heads, rows]. A row without
// visible keys gives lse = -inf. Hidden elements are not written: zero the buffer first.
void softmax(const Square& product, const Square& probability, DType probability_dtype, float* lse,
             const TileMapView& map, const Scoring& scoring, Stream stream);

// probability = exp(score - lse): recomputes the probabilities from the forward pass's lse. With softcap, the
// products become the derivatives of the scores with respect to the scaled products.
void recompute_probability(const Square& product, const Square& probability, DType probability_dtype,
                           const float* lse, const TileMapView& map, const Scoring& scoring, Stream stream);

// probability <- scale * probability * (dp - delta), times the derivatives if they are given: the gradient of
// the products, in place.
void score_gradient(const Square& dp, const Square& probability, DType probability_dtype, const float* delta,
                    const Square* derivatives, const TileMapView& map, float scale, Stream stream);

// delta[head, token] = sum over head_dim of o * dout, less dlse[head, token] if that is not null. o [tokens,
// heads, head_dim] may be f32 even if dout is not.
void row_delta(const TensorView& o, const TensorView& dout, const float* dlse, float* delta, Stream stream);

// to <- from (f32, contiguous [tokens, head_dim]), rounded to the dtype of `to`, which has one head.
void round_to(const TensorView& to, const float* from, Stream stream);

// Empty if this build has machine code for the device; otherwise the reason.
std::string no_code_reason(const Device& device);

}  // namespace longspan::naive_gpu
