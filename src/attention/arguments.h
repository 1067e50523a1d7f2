// What a caller passes to a pass: refused by name where it does not fit the problem.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "attention/problem.h"
#include "longspan/attention.h"

namespace longspan {

// What a kernel asks of the arguments beyond the problem.
struct ArgumentRules {
  std::string_view kernel;     // its name, for messages
  size_t workspace_bytes = 0;  // of the pass
  size_t alignment = 1;        // of the rows of every tensor, in bytes
  bool merges_parts = false;   // ForwardArgs::part_o is allowed
  bool over_ranks = false;     // sinks are not
  Device device;               // that uses the memory

  // Of context parallelism: what the forward pass writes for the backward pass. Forward, null is allowed.
  std::span<const std::byte> kept{};
  size_t kept_bytes = 0;
};

// Throw kInput that names the argument, what it is, and what is allowed: null or misaligned pointers, a dtype
// or shape that is not the problem's, strides that overlap or are negative, an output that may share memory
// with another argument, a workspace that is too small.
void check(const ForwardArgs& args, const Problem& problem, const ArgumentRules& rules);
void check(const BackwardArgs& args, const Problem& problem, const ArgumentRules& rules);

}  // namespace longspan
