// The problems of sm90_backward_probe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attention/problem.h"

namespace longspan {

struct Case {
  std::string name;
  std::function<HeadMasks()> masks;
  int64_t heads_q = 1, heads_kv = 1, head_dim = 128;
  DType dtype = DType::kBF16;
  bool fp32_output = false;
};

// To be checked, and to be timed.
std::vector<Case> small_cases();
std::vector<Case> large_cases();

Problem problem_of(const Case& c);

}  // namespace longspan
