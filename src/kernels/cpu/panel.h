// The element-wise work of attention on panels, for whatever vector unit the machine has.
//
// A panel holds `lanes` query rows side by side: scores are [keys, lanes], outputs [head_dim, lanes].
// Whatever is per row (maximum, sum, mask) is then per lane, so that nothing ever crosses the lanes of a
// vector.
#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace longspan {

// Every panel has a multiple of this many lanes.
inline constexpr int32_t kLaneMultiple = 16;

// What the lanes see of the keys in a partial tile: lane r sees key j if begin[r] <= j < end[r] in any layer.
struct LaneMask {
  const int32_t* begin = nullptr;  // [layers, stride]
  const int32_t* end = nullptr;    // [layers, stride]
  int32_t layers = 0;              // 0: no mask, every lane sees every key
  int64_t stride = 0;

  LaneMask from_lane(int64_t lane) const {
    return layers == 0 ? *this : LaneMask{begin + lane, end + lane, layers, stride};
  }
};

// What the online softmax keeps per lane. `maximum` is what scores are measured from, in units of log2; it
// may lag behind the true maximum by kLag.
struct SoftmaxState {
  float* maximum = nullptr;  // [lanes], -inf at first
  float* sum = nullptr;      // [lanes], 0 at first
  float* out = nullptr;      // [head_dim, lanes], 0 at first
  int32_t head_dim = 0;
};

// scores [keys, lanes], in units of log2, become probabilities 2^(score - maximum); the sum takes them up.
// Where a maximum rises, sum and out are scaled down first. Key number 0 is key first_key of the mask.
void softmax_forward(float* scores, int32_t keys, int32_t lanes, int32_t first_key, const LaneMask& mask,
                     const SoftmaxState& state);

// scores [keys, lanes] become probabilities p = 2^(score - lse2), and dprobs [keys, lanes] become the
// gradients of the scores, p * (dprob - delta).
void softmax_backward(float* scores, float* dprobs, int32_t keys, int32_t lanes, int32_t first_key,
                      const LaneMask& mask, const float* lse2, const float* delta);

// out[c, r] = in[r, c]. rows and columns are multiples of 4.
void transpose(const float* in, int64_t in_stride, int32_t rows, int32_t columns, float* out,
               int64_t out_stride);

// f32 elements from and to a tensor's type.
void load_elements(const void* in, DType dtype, int64_t count, float factor, float* out);
void store_elements(const float* in, int64_t count, float factor, void* out, DType dtype);

// The sum of a[i] * b[i].
float dot(const float* a, const float* b, int64_t count);

// 2^x for x <= 0, as the softmax computes it; for its test.
void exp2_elements(const float* in, int64_t count, float* out);

// "AVX3": the vector unit in use.
const char* vector_target();

}  // namespace longspan
