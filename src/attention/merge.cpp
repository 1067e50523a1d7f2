#include "attention/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"

namespace longspan {

void merge_row(float* o, float& lse, const float* part_o, float part_lse, int64_t head_dim) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  if (part_lse == kEmpty) return;
  if (lse == kEmpty) {
    std::copy_n(part_o, head_dim, o);
    lse = part_lse;
    return;
  }
  const float hi = std::max(lse, part_lse), lo = std::min(lse, part_lse);
  // max and min can lose a NaN, so check the sum: lse + part_lse is NaN if either is.
  const float t = std::isnan(lse + part_lse) ? lse + part_lse : std::exp(lo - hi);
  const float hi_weight = 1 / (1 + t), lo_weight = t / (1 + t);
  const float weight = lse >= part_lse ? hi_weight : lo_weight;
  const float part_weight = lse >= part_lse ? lo_weight : hi_weight;
  for (int64_t d = 0; d < head_dim; ++d) o[d] = weight * o[d] + part_weight * part_o[d];
  lse = hi + std::log1p(t);
}

void merge(const PartialResult& into, const PartialResult& part) {
  LONGSPAN_CHECK(into.o.dtype == DType::kF32 && part.o.dtype == DType::kF32,
                 "partial results are f32, not {} and {}", name_of(into.o.dtype), name_of(part.o.dtype));
  LONGSPAN_CHECK(
      into.o.tokens == part.o.tokens && into.o.heads == part.o.heads && into.o.head_dim == part.o.head_dim,
      "shapes differ: [{}, {}, {}] and [{}, {}, {}]", into.o.tokens, into.o.heads, into.o.head_dim,
      part.o.tokens, part.o.heads, part.o.head_dim);
  constexpr int64_t kTokens = 64;
  parallel_for((into.o.tokens + kTokens - 1) / kTokens, [&](int64_t chunk, int) {
    const int64_t end = std::min(into.o.tokens, (chunk + 1) * kTokens);
    for (int64_t token = chunk * kTokens; token < end; ++token) {
      for (int64_t head = 0; head < into.o.heads; ++head) {
        merge_row(into.o.row<float>(token, head), into.lse[head * into.lse_head_stride + token],
                  part.o.row<float>(token, head), part.lse[head * part.lse_head_stride + token],
                  into.o.head_dim);
      }
    }
  });
}

}  // namespace longspan
