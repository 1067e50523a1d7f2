// Problems for the tests of context parallelism.
#pragma once

#include <memory>
#include <string>

#include "attention/problem.h"
#include "mask/patterns/patterns.h"

namespace longspan {

inline Problem cp_problem(const std::string& pattern, int64_t tokens, int64_t heads_q, int64_t heads_kv,
                          int64_t head_dim = 16) {
  PatternOptions options;
  options.seqlen = tokens;
  options.kv_heads = heads_kv;
  options.lengths = "uniform:20:90";
  options.values.set("window", TokenPair{tokens / 8, {}});
  if (pattern == "uniform_block_sparse") options.values.set("block", 64);
  if (pattern == "variable_block_sparse") options.values.set("block", 128).set("block_min", 32);
  Problem problem;
  problem.tokens_q = problem.tokens_kv = tokens;
  problem.heads_q = heads_q;
  problem.heads_kv = heads_kv;
  problem.head_dim = head_dim;
  problem.masks = std::make_shared<HeadMasks>(draw_mask(pattern, options).masks);
  return problem;
}

// Lengths that the pattern supports; most support any length.
inline int64_t cp_length(const std::string& pattern) {
  if (pattern == "block_causal_document") return 2048;
  return pattern.ends_with("block_sparse") ? 512 : 509;
}

}  // namespace longspan
