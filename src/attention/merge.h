// Merging partial results over disjoint sets of keys. A row's (o, lse) holds all that a merge needs to know
// of the keys it has seen.
#pragma once

#include <cstdint>

#include "longspan/base.h"

namespace longspan {

// A partial result. o is f32; lse[head * lse_head_stride + token] is the natural log. A row that has seen no
// key holds o = 0, lse = -inf.
struct PartialResult {
  TensorView o;  // [tokens, heads, head_dim]
  float* lse = nullptr;
  int64_t lse_head_stride = 0;
};

// Sets `into` to the attention over the keys of both parts, which must be disjoint. Shapes must be equal.
// Uses all threads.
//
// Derivation. With s_j the scaled scores, a part A of the keys gives lse_A = log sum_{j in A} exp(s_j) and
// o_A = sum_{j in A} exp(s_j - lse_A) v_j. For disjoint A and B, exp(lse) = exp(lse_A) + exp(lse_B), and
//   o = sum_{j in A or B} exp(s_j - lse) v_j = exp(lse_A - lse) o_A + exp(lse_B - lse) o_B,
// a convex combination. With hi and lo the larger and the smaller lse and t = exp(lo - hi) in [0, 1],
//   lse = hi + log1p(t),  weight of hi = 1 / (1 + t),  weight of lo = t / (1 + t).
// Nothing overflows and no digits cancel, however far apart the two are. An empty part has lse = -inf, so t =
// 0 and the other part keeps its bits. Two empty parts would give hi - lo = NaN, so that case is skipped. A
// NaN in either lse propagates to the result.
void merge(const PartialResult& into, const PartialResult& part);

// The same for one row of head_dim elements.
void merge_row(float* o, float& lse, const float* part_o, float part_lse, int64_t head_dim);

}  // namespace longspan
