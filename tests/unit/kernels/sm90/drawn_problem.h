// A problem of a drawn mask, for tests of sm90's planners.
#pragma once

#include <memory>
#include <string_view>

#include "attention/problem.h"
#include "mask/patterns/patterns.h"

namespace longspan::sm90 {

// head_dim 128, bf16.
inline Problem drawn_problem(std::string_view pattern, const PatternOptions& options, int64_t heads_q,
                             int64_t heads_kv) {
  Problem problem;
  problem.masks = std::make_shared<const HeadMasks>(draw_mask(pattern, options).masks);
  problem.tokens_q = problem.tokens_kv = options.seqlen;
  problem.heads_q = heads_q, problem.heads_kv = heads_kv, problem.head_dim = 128;
  problem.dtype = DType::kBF16;
  return problem;
}

}  // namespace longspan::sm90
