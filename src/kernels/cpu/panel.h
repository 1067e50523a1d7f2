// The element-wise work of attention on panels, vectorised for the CPU at hand.
//
// A panel holds `lanes` query rows side by side: scores are [keys, lanes], outputs [head_dim, lanes]. Per-row
// values (maximum, sum, mask) are then per lane, so no operation crosses the lanes of a vector.
#pragma once

#include <cstdint>

#include "longspan/base.h"

namespace longspan {

// The number of lanes of a panel is a multiple of this.
inline constexpr int32_t kLaneMultiple = 16;

// Visibility within a partial tile: lane r sees key j if begin[r] <= j < end[r] in any layer.
struct LaneMask {
  const int32_t* begin = nullptr;  // [layers, stride]
  const int32_t* end = nullptr;    // [layers, stride]
  int32_t layers = 0;              // 0: no mask, every lane sees every key
  int64_t stride = 0;

  LaneMask from_lane(int64_t lane) const {
    return layers == 0 ? *this : LaneMask{begin + lane, end + lane, layers, stride};
  }
};

// The online softmax state per lane. `maximum` is the reference of the exponentials, in log2 units; it may
// lag the true maximum by kLag.
struct SoftmaxState {
  float* maximum = nullptr;  // [lanes], initially -inf
  float* sum = nullptr;      // [lanes], initially 0
  float* out = nullptr;      // [head_dim, lanes], initially 0
  int32_t head_dim = 0;
};

// Replaces scores [keys, lanes], in log2 units, by probabilities 2^(score - maximum) and adds them to the
// sum. Where a maximum rises, scales sum and out down first. Row 0 of the scores is key first_key of the
// mask.
void softmax_forward(float* scores, int32_t keys, int32_t lanes, int32_t first_key, const LaneMask& mask,
                     const SoftmaxState& state);

// Replaces scores [keys, lanes] by probabilities p = 2^(score - lse2), and dprobs [keys, lanes] by the
// gradients of the scores, p * (dprob - delta).
void softmax_backward(float* scores, float* dprobs, int32_t keys, int32_t lanes, int32_t first_key,
                      const LaneMask& mask, const float* lse2, const float* delta);

// What turns products q k into scores (Problem::softcap and alibi_slopes), in log2 units.
struct ScoreChange {
  float softcap = 0;                  // 0: none
  const float* slope = nullptr;       // [lanes]; null: no ALiBi
  const int32_t* position = nullptr;  // [lanes]: the key at distance 0

  bool any() const { return softcap != 0 || slope != nullptr; }
  ScoreChange from_lane(int64_t lane) const {
    return slope == nullptr ? *this : ScoreChange{softcap, slope + lane, position + lane};
  }
};

// Replaces products [keys, lanes] by scores. Row 0 is key `first_key` of all keys. With `derivative`, also
// writes the derivatives of the scores with respect to the products there.
void change_scores(float* products, int32_t keys, int32_t lanes, int32_t first_key, const ScoreChange& change,
                   float* derivative);

// a[i] *= b[i]
void multiply_elements(float* a, const float* b, int64_t count);

// out[c, r] = in[r, c]. rows and columns must be multiples of 4.
void transpose(const float* in, int64_t in_stride, int32_t rows, int32_t columns, float* out,
               int64_t out_stride);

// Convert a tensor's elements to f32 and back.
void load_elements(const void* in, DType dtype, int64_t count, float factor, float* out);
void store_elements(const float* in, int64_t count, float factor, void* out, DType dtype);

// The sum of a[i] * b[i].
float dot(const float* a, const float* b, int64_t count);

// 2^x for x <= 0 as the softmax computes it; exposed for its test.
void exp2_elements(const float* in, int64_t count, float* out);

// The vector instruction set in use, such as "AVX3".
const char* vector_target();

}  // namespace longspan
