// A plan of sm90 whose backward pass has a given shape.
#pragma once

#include <memory>

#include "attention/kernel.h"
#include "base/cuda/cuda.h"
#include "kernels/sm90/backward/plan.h"
#include "kernels/sm90/sm90.h"

namespace longspan {

// The forward pass is the registered kernel's.
class BackwardInShape final : public Plan {
 public:
  BackwardInShape(const Problem& problem, const sm90::BackwardShape& shape, const Device& gpu)
      : forward_(sm90_kernel().plan(problem, gpu)), backward_(problem, no_other_tile(shape), gpu) {}
  size_t workspace_bytes(Direction direction) const override {
    return direction == Direction::kForward ? forward_->workspace_bytes(direction)
                                            : backward_.workspace_bytes();
  }
  size_t plan_bytes() const override { return forward_->plan_bytes() + backward_.bytes(); }
  void forward(const ForwardArgs& args, Stream stream) override { forward_->forward(args, stream); }
  void backward(const BackwardArgs& args, Stream stream) override { backward_.run(args, cuda::raw(stream)); }

 private:
  static sm90::BackwardShape no_other_tile(sm90::BackwardShape shape) {
    shape.any_tile = false;
    return shape;
  }

  std::unique_ptr<Plan> forward_;
  sm90::BackwardPlan backward_;
};

}  // namespace longspan
