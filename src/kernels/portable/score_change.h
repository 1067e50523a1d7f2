// Scores that are more than scaled products: softcap and ALiBi. Instances of their own have them, so that the
// others pay nothing. Scores are to the base 2 here.
#pragma once

#include "kernels/portable/isa/device.h"
#include "kernels/portable/params.h"

namespace longspan::portable {

// 1 - 2 / (e^2x + 1): exact at both ends, and its error is that of two roundings of 1.
template <class Isa>
LONGSPAN_DEVICE float tanh_of(float x) {
  return 1 - 2 / (1 + Isa::exp2(x * 2.8853900817779268f));
}

// A score before ALiBi, and its derivative by the scaled product.
struct Capped {
  float score, derivative;
};
template <class Isa>
LONGSPAN_DEVICE Capped capped(const ScoreChange& change, float product) {
  if (change.cap_log2 == 0) return {product * change.scale_log2, 1};
  const float t = tanh_of<Isa>(product * change.scale_over_cap);
  return {change.cap_log2 * t, (1 - t) * (1 + t)};
}

// What ALiBi subtracts at this distance.
LONGSPAN_DEVICE float penalty(float slope, int distance) {
  return slope * static_cast<float>(distance < 0 ? -distance : distance);
}
LONGSPAN_DEVICE float slope_of(const ScoreChange& change, int query_head) {
  return change.slopes == nullptr ? 0 : change.slopes[query_head] * 1.44269504088896341f;
}

}  // namespace longspan::portable
