// What an attention sink does to a row.
#pragma once

#include <cmath>
#include <limits>

namespace longspan {

struct WithSink {
  float lse = 0;
  float share = 0;  // of o that is left
};

// A row's lse with the sink: a merge (attention/merge.h) with a part whose o is 0. A NaN stays; a sink of
// -inf changes nothing. Runs on GPUs as well.
constexpr WithSink with_sink(float lse, float sink) {
  if (sink == -std::numeric_limits<float>::infinity()) return {lse, 1};
  const float over = sink - lse;  // +inf for a row that sees no key
  return {over > 0 ? sink + std::log1p(std::exp(-over)) : lse + std::log1p(std::exp(over)),
          1 / (1 + std::exp(over))};
}

}  // namespace longspan
