// The plans that sm90 could make of a problem: the planner's choice first, then others that differ from it in
// tile, dQ accumulation, split, order and special mechanisms. No two of them give the same work to the GPU.
// Host code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/forward/planner/shape.h"
#include "longspan/base.h"

namespace longspan {

template <class Shape>
struct Candidate {
  std::string name;  // every choice that it makes; the same on every machine
  std::string by;    // the change that made it: "chosen", "tile and split", or the mechanism that differs
  Shape shape;
  uint64_t hash = 0;  // of the plan
};
using BackwardCandidate = Candidate<sm90::BackwardShape>;
using ForwardCandidate = Candidate<sm90::ForwardShape>;

std::vector<BackwardCandidate> backward_candidates(const Problem& problem, const Device& device);
std::vector<ForwardCandidate> forward_candidates(const Problem& problem, const Device& device);

// Each has one special mechanism of `of` switched off or on.
std::vector<BackwardCandidate> backward_changes(const Problem& problem, const Device& device,
                                                const BackwardCandidate& of);
std::vector<ForwardCandidate> forward_changes(const Problem& problem, const Device& device,
                                              const ForwardCandidate& of);

// The chosen plan, then for each special mechanism that it uses the plan without it, `by` the mechanism's
// name. A split that suits another tile is chosen anew.
std::vector<BackwardCandidate> backward_ablations(const Problem& problem, const Device& device);
std::vector<ForwardCandidate> forward_ablations(const Problem& problem, const Device& device);

// The candidate of this name. Throws an input error if there is none.
BackwardCandidate backward_candidate(const Problem& problem, const Device& device, const std::string& name);
ForwardCandidate forward_candidate(const Problem& problem, const Device& device, const std::string& name);

}  // namespace longspan
