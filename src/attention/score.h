// The score of a pair, as Problem defines it: from the scaled product q k, by softcap and ALiBi.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/problem.h"

namespace longspan {

// For one query head. T is float in kernels and double in the oracle. Its functions run on GPUs as well.
template <class T>
struct ScoreRule {
  T softcap = 0;      // 0: none
  T slope = 0;        // of ALiBi; 0: none
  int64_t shift = 0;  // tokens_kv - tokens_q

  static ScoreRule of(const Problem& problem, int64_t head) {
    ScoreRule rule;
    rule.softcap = problem.softcap;
    if (!problem.alibi_slopes.empty()) rule.slope = problem.alibi_slopes[static_cast<size_t>(head)];
    rule.shift = problem.tokens_kv - problem.tokens_q;
    return rule;
  }

  constexpr bool plain() const { return softcap == 0 && slope == 0; }

  // The score before ALiBi; `product` is the scaled one.
  constexpr T capped(T product) const {
    return softcap == 0 ? product : softcap * std::tanh(product / softcap);
  }
  // The derivative of capped(), which it is given.
  constexpr T derivative(T capped) const {
    if (softcap == 0) return 1;
    const T t = capped / softcap;
    return (1 - t) * (1 + t);
  }
  // What ALiBi subtracts.
  constexpr T penalty(int64_t row, int64_t key) const {
    const int64_t distance = row + shift - key;
    return slope * static_cast<T>(distance < 0 ? -distance : distance);
  }
  constexpr T score(T product, int64_t row, int64_t key) const {
    return slope == 0 ? capped(product) : capped(product) - penalty(row, key);
  }
};

}  // namespace longspan
