// What the probes of sm90 run: problems by name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "attention/problem.h"
#include "mask/patterns/patterns.h"

namespace longspan {

struct Case {
  std::string name;
  std::function<HeadMasks()> masks;
  int64_t heads_q = 64, heads_kv = 8, head_dim = 128;
  DType dtype = DType::kBF16;
  bool fp32_output = false;
  float scale = 0;  // Problem::scale
};

// block 0: the pattern's own.
inline HeadMasks pattern(const std::string& name, int64_t seqlen, int64_t kv_heads = 1, int64_t block = 0,
                         double density = 0.3, const std::string& lengths = "auto") {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = kv_heads;
  if (block > 0) options.values.set("block", block);
  options.values.set("density", density);
  options.lengths = lengths;
  return draw_mask(name, options).masks;
}

inline Problem problem_of(const Case& c) {
  Problem p;
  p.masks = std::make_shared<const HeadMasks>(c.masks());
  p.tokens_q = p.masks->front().rows();
  p.tokens_kv = p.masks->front().columns();
  p.heads_q = c.heads_q;
  p.heads_kv = c.heads_kv;
  p.head_dim = c.head_dim;
  p.dtype = c.dtype;
  p.fp32_output = c.fp32_output;
  p.scale = c.scale;
  return p;
}

}  // namespace longspan
