#include "kernels/cpu/panel.h"

#include <limits>

#include "base/dtype.h"
#include "base/error.h"

// Compiled once per vector instruction set that the compiler supports; the best one for the machine is chosen
// at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/panel.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace longspan::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, kLaneMultiple> kF32;
constexpr hn::RebindToSigned<decltype(kF32)> kI32;
using F32 = hn::Vec<decltype(kF32)>;
using I32 = hn::Vec<decltype(kI32)>;
using Mask32 = hn::Mask<decltype(kF32)>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// The running maximum may lag the true one by this much (in log2) before a rescale. Probabilities up to 2^8
// lose nothing in f32, and rescaling is rare after the first step.
constexpr float kLag = 8;

// 2^x for x in [-inf, 126]. Exactly 0 below 2^-126, which avoids slow denormals; exactly 1 at 0; NaN for NaN
// (the callers' Min has its operands in that order because x86 returns the second one). x = n + f with n the
// nearest integer. 2^f is a polynomial of relative error 2e-9 (before rounding), fitted to [-1/2, 1/2] with
// constant term 1; n is added to the exponent.
HWY_INLINE F32 exp2_of(F32 x) {
  const F32 lowest = hn::Set(kF32, -126.0f);
  const Mask32 vanishes = hn::Lt(x, lowest);
  x = hn::IfThenElse(vanishes, lowest, x);
  const F32 round = hn::Set(kF32, 12582912.0f);  // 1.5 * 2^23: x + round has n in its lowest bits
  const F32 shifted = hn::Add(x, round);
  const F32 f = hn::Sub(x, hn::Sub(shifted, round));
  F32 p = hn::Set(kF32, 1.53533619e-4f);
  p = hn::MulAdd(p, f, hn::Set(kF32, 1.33988744e-3f));
  p = hn::MulAdd(p, f, hn::Set(kF32, 9.61843736e-3f));
  p = hn::MulAdd(p, f, hn::Set(kF32, 5.55033247e-2f));
  p = hn::MulAdd(p, f, hn::Set(kF32, 2.40226479e-1f));
  p = hn::MulAdd(p, f, hn::Set(kF32, 6.93147203e-1f));
  p = hn::MulAdd(p, f, hn::Set(kF32, 1.0f));
  const I32 n = hn::ShiftLeft<23>(hn::BitCast(kI32, shifted));
  return hn::IfThenZeroElse(vanishes, hn::BitCast(kF32, hn::Add(hn::BitCast(kI32, p), n)));
}

// tanh(x) = sign(x) (1 - e) / (1 + e) with e = 2^(-2 |x| log2(e)). Its error is that of two roundings of 1.
HWY_INLINE F32 tanh_of(F32 x) {
  const F32 one = hn::Set(kF32, 1.0f);
  const F32 e = exp2_of(hn::Mul(hn::Abs(x), hn::Set(kF32, -2.8853900817779268f)));
  return hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
}

// A mask of the lanes, starting at `lane`, that see `key`.
HWY_INLINE Mask32 visible(const LaneMask& mask, int32_t key, int64_t lane) {
  const I32 j = hn::Set(kI32, key);
  Mask32 seen = hn::FirstN(kF32, 0);
  for (int32_t layer = 0; layer < mask.layers; ++layer) {
    const I32 begin = hn::LoadU(kI32, mask.begin + layer * mask.stride + lane);
    const I32 end = hn::LoadU(kI32, mask.end + layer * mask.stride + lane);
    seen = hn::Or(seen, hn::RebindMask(kF32, hn::AndNot(hn::Lt(j, begin), hn::Lt(j, end))));
  }
  return seen;
}

// Processes kVectors vectors of lanes at once, so that dependency chains overlap.
template <int kVectors>
void forward_lanes(float* scores, int32_t keys, int32_t lanes, int32_t first_key, const LaneMask& mask,
                   const SoftmaxState& state, int64_t lane) {
  const int64_t n = hn::Lanes(kF32);
  F32 top[kVectors];
  for (F32& t : top) t = hn::Set(kF32, -kInfinity);
  for (int32_t j = 0; j < keys; ++j) {
    float* row = scores + int64_t{j} * lanes + lane;
    for (int v = 0; v < kVectors; ++v) {
      F32 s = hn::LoadU(kF32, row + v * n);
      if (mask.layers > 0) {
        s = hn::IfThenElse(visible(mask, first_key + j, lane + v * n), s, hn::Set(kF32, -kInfinity));
        hn::StoreU(s, kF32, row + v * n);
      }
      top[v] = hn::Max(top[v], s);
    }
  }
  F32 from[kVectors], sum_before[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    float* maximum = state.maximum + lane + v * n;
    const F32 before = hn::LoadU(kF32, maximum);
    top[v] = hn::Min(top[v], hn::Set(kF32, kLargest));
    const Mask32 rises = hn::Gt(top[v], hn::Add(before, hn::Set(kF32, kLag)));
    sum_before[v] = hn::LoadU(kF32, state.sum + lane + v * n);
    const F32 now = hn::IfThenElse(rises, top[v], before);
    if (!hn::AllFalse(kF32, rises)) {
      // A lane whose maximum stays is scaled by exactly 1, even while it is -inf.
      const F32 scale = hn::IfThenElse(rises, exp2_of(hn::Sub(before, now)), hn::Set(kF32, 1.0f));
      sum_before[v] = hn::Mul(sum_before[v], scale);
      for (int32_t d = 0; d < state.head_dim; ++d) {
        float* out = state.out + int64_t{d} * lanes + lane + v * n;
        hn::StoreU(hn::Mul(hn::LoadU(kF32, out), scale), kF32, out);
      }
      hn::StoreU(now, kF32, maximum);
    }
    // No key seen yet: any finite number works, since every score is -inf.
    from[v] = hn::Max(now, hn::Set(kF32, -kLargest));
  }
  F32 sum[kVectors];  // the sum of this step only; adding it once loses less to rounding
  for (F32& s : sum) s = hn::Zero(kF32);
  for (int32_t j = 0; j < keys; ++j) {
    float* row = scores + int64_t{j} * lanes + lane;
    for (int v = 0; v < kVectors; ++v) {
      // The bound matters only for scores of +inf, since the maximum is clamped to a finite value.
      const F32 x = hn::Min(hn::Set(kF32, kLag), hn::Sub(hn::LoadU(kF32, row + v * n), from[v]));
      const F32 p = exp2_of(x);
      sum[v] = hn::Add(sum[v], p);
      hn::StoreU(p, kF32, row + v * n);
    }
  }
  for (int v = 0; v < kVectors; ++v)
    hn::StoreU(hn::Add(sum_before[v], sum[v]), kF32, state.sum + lane + v * n);
}

template <int kVectors>
void backward_lanes(float* scores, float* dprobs, int32_t keys, int32_t lanes, int32_t first_key,
                    const LaneMask& mask, const float* lse2, const float* delta, int64_t lane) {
  const int64_t n = hn::Lanes(kF32);
  F32 from[kVectors], less[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    from[v] = hn::LoadU(kF32, lse2 + lane + v * n);
    less[v] = hn::LoadU(kF32, delta + lane + v * n);
  }
  for (int32_t j = 0; j < keys; ++j) {
    const int64_t row = int64_t{j} * lanes + lane;
    for (int v = 0; v < kVectors; ++v) {
      float* s = scores + row + v * n;
      float* dp = dprobs + row + v * n;
      // Clamp to 1: large scores round coarsely.
      const F32 x = hn::Min(hn::Zero(kF32), hn::Sub(hn::LoadU(kF32, s), from[v]));
      F32 p = exp2_of(x);
      if (mask.layers > 0) p = hn::IfThenElseZero(visible(mask, first_key + j, lane + v * n), p);
      hn::StoreU(p, kF32, s);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(kF32, dp), less[v])), kF32, dp);
    }
  }
}

void softmax_forward_t(float* scores, int32_t keys, int32_t lanes, int32_t first_key, const LaneMask& mask,
                       const SoftmaxState& state) {
  const int64_t n = hn::Lanes(kF32);
  int64_t lane = 0;
  for (; lane + 4 * n <= lanes; lane += 4 * n) {
    forward_lanes<4>(scores, keys, lanes, first_key, mask, state, lane);
  }
  for (; lane < lanes; lane += n) forward_lanes<1>(scores, keys, lanes, first_key, mask, state, lane);
}

void softmax_backward_t(float* scores, float* dprobs, int32_t keys, int32_t lanes, int32_t first_key,
                        const LaneMask& mask, const float* lse2, const float* delta) {
  const int64_t n = hn::Lanes(kF32);
  int64_t lane = 0;
  for (; lane + 4 * n <= lanes; lane += 4 * n) {
    backward_lanes<4>(scores, dprobs, keys, lanes, first_key, mask, lse2, delta, lane);
  }
  for (; lane < lanes; lane += n) {
    backward_lanes<1>(scores, dprobs, keys, lanes, first_key, mask, lse2, delta, lane);
  }
}

void change_scores_t(float* products, int32_t keys, int32_t lanes, int32_t first_key,
                     const ScoreChange& change, float* derivative) {
  const int64_t n = hn::Lanes(kF32);
  const F32 one = hn::Set(kF32, 1.0f), cap = hn::Set(kF32, change.softcap),
            inverse = hn::Set(kF32, change.softcap == 0 ? 0 : 1 / change.softcap);
  for (int32_t j = 0; j < keys; ++j) {
    const I32 key = hn::Set(kI32, first_key + j);
    for (int64_t lane = 0; lane < lanes; lane += n) {
      const int64_t at = int64_t{j} * lanes + lane;
      F32 x = hn::LoadU(kF32, products + at);
      if (change.softcap != 0) {
        const F32 t = tanh_of(hn::Mul(x, inverse));
        if (derivative != nullptr)
          hn::StoreU(hn::Mul(hn::Sub(one, t), hn::Add(one, t)), kF32, derivative + at);
        x = hn::Mul(cap, t);
      }
      if (change.slope != nullptr) {
        const I32 distance = hn::Abs(hn::Sub(hn::LoadU(kI32, change.position + lane), key));
        x = hn::NegMulAdd(hn::LoadU(kF32, change.slope + lane), hn::ConvertTo(kF32, distance), x);
      }
      hn::StoreU(x, kF32, products + at);
    }
  }
}

void multiply_elements_t(float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] *= b[i];
}

// Transposes blocks of 4 x 4 with vectors of four in two rounds of interleaving, the same on every machine.
void transpose_t(const float* in, int64_t in_stride, int32_t rows, int32_t columns, float* out,
                 int64_t out_stride) {
  const hn::CappedTag<float, 4> d4;
  if (hn::Lanes(d4) != 4) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
    }
    return;
  }
#if HWY_TARGET != HWY_SCALAR
  for (int64_t c = 0; c < columns; c += 4) {
    for (int64_t r = 0; r < rows; r += 4) {
      const float* from = in + r * in_stride + c;
      const auto a = hn::LoadU(d4, from), b = hn::LoadU(d4, from + in_stride);
      const auto e = hn::LoadU(d4, from + 2 * in_stride), f = hn::LoadU(d4, from + 3 * in_stride);
      const auto ae_low = hn::InterleaveLower(d4, a, e), ae_high = hn::InterleaveUpper(d4, a, e);
      const auto bf_low = hn::InterleaveLower(d4, b, f), bf_high = hn::InterleaveUpper(d4, b, f);
      float* to = out + c * out_stride + r;
      hn::StoreU(hn::InterleaveLower(d4, ae_low, bf_low), d4, to);
      hn::StoreU(hn::InterleaveUpper(d4, ae_low, bf_low), d4, to + out_stride);
      hn::StoreU(hn::InterleaveLower(d4, ae_high, bf_high), d4, to + 2 * out_stride);
      hn::StoreU(hn::InterleaveUpper(d4, ae_high, bf_high), d4, to + 3 * out_stride);
    }
  }
#endif
}

void load_elements_t(const void* in, DType dtype, int64_t count, float factor, float* out) {
  if (dtype == DType::kF32) {
    const float* from = static_cast<const float*>(in);
    for (int64_t i = 0; i < count; ++i) out[i] = from[i] * factor;
  } else if (dtype == DType::kBF16) {
    const bf16* from = static_cast<const bf16*>(in);
    for (int64_t i = 0; i < count; ++i) out[i] = to_float(from[i]) * factor;
  } else {
    LONGSPAN_CHECK(dtype == DType::kF16, "cannot load {}", name_of(dtype));
    const f16* from = static_cast<const f16*>(in);
    for (int64_t i = 0; i < count; ++i) out[i] = to_float(from[i]) * factor;
  }
}

void store_elements_t(const float* in, int64_t count, float factor, void* out, DType dtype) {
  if (dtype == DType::kF32) {
    float* to = static_cast<float*>(out);
    for (int64_t i = 0; i < count; ++i) to[i] = in[i] * factor;
  } else if (dtype == DType::kBF16) {
    bf16* to = static_cast<bf16*>(out);
    for (int64_t i = 0; i < count; ++i) to[i] = to_bf16(in[i] * factor);
  } else {
    LONGSPAN_CHECK(dtype == DType::kF16, "cannot store {}", name_of(dtype));
    f16* to = static_cast<f16*>(out);
    for (int64_t i = 0; i < count; ++i) to[i] = to_f16(in[i] * factor);
  }
}

float dot_t(const float* a, const float* b, int64_t count) {
  const int64_t n = hn::Lanes(kF32);
  F32 sum = hn::Zero(kF32);
  int64_t i = 0;
  for (; i + n <= count; i += n) sum = hn::MulAdd(hn::LoadU(kF32, a + i), hn::LoadU(kF32, b + i), sum);
  float total = hn::GetLane(hn::SumOfLanes(kF32, sum));
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

void exp2_elements_t(const float* in, int64_t count, float* out) {
  const int64_t n = hn::Lanes(kF32);
  LONGSPAN_CHECK(count % n == 0, "{} elements are no multiple of {}", count, n);
  for (int64_t i = 0; i < count; i += n) hn::StoreU(exp2_of(hn::LoadU(kF32, in + i)), kF32, out + i);
}

const char* vector_target_t() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace longspan::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace longspan {

HWY_EXPORT(softmax_forward_t);
HWY_EXPORT(softmax_backward_t);
HWY_EXPORT(change_scores_t);
HWY_EXPORT(multiply_elements_t);
HWY_EXPORT(transpose_t);
HWY_EXPORT(load_elements_t);
HWY_EXPORT(store_elements_t);
HWY_EXPORT(dot_t);
HWY_EXPORT(exp2_elements_t);
HWY_EXPORT(vector_target_t);

void softmax_forward(float* scores, int32_t keys, int32_t lanes, int32_t first_key, const LaneMask& mask,
                     const SoftmaxState& state) {
  HWY_DYNAMIC_DISPATCH(softmax_forward_t)(scores, keys, lanes, first_key, mask, state);
}

void softmax_backward(float* scores, float* dprobs, int32_t keys, int32_t lanes, int32_t first_key,
                      const LaneMask& mask, const float* lse2, const float* delta) {
  HWY_DYNAMIC_DISPATCH(softmax_backward_t)(scores, dprobs, keys, lanes, first_key, mask, lse2, delta);
}

void change_scores(float* products, int32_t keys, int32_t lanes, int32_t first_key, const ScoreChange& change,
                   float* derivative) {
  HWY_DYNAMIC_DISPATCH(change_scores_t)(products, keys, lanes, first_key, change, derivative);
}

void multiply_elements(float* a, const float* b, int64_t count) {
  HWY_DYNAMIC_DISPATCH(multiply_elements_t)(a, b, count);
}

void transpose(const float* in, int64_t in_stride, int32_t rows, int32_t columns, float* out,
               int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_t)(in, in_stride, rows, columns, out, out_stride);
}

void load_elements(const void* in, DType dtype, int64_t count, float factor, float* out) {
  HWY_DYNAMIC_DISPATCH(load_elements_t)(in, dtype, count, factor, out);
}

void store_elements(const float* in, int64_t count, float factor, void* out, DType dtype) {
  HWY_DYNAMIC_DISPATCH(store_elements_t)(in, count, factor, out, dtype);
}

float dot(const float* a, const float* b, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(dot_t)(a, b, count);
}

void exp2_elements(const float* in, int64_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(exp2_elements_t)(in, count, out);
}

const char* vector_target() {
  return HWY_DYNAMIC_DISPATCH(vector_target_t)();
}

}  // namespace longspan
#endif  // HWY_ONCE
