// sm90's forward pass over keys in two parts, of which the second is merged with the first.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"
#include "gpu/gpu.h"
#include "kernels/sm90/forward/plan.h"

namespace longspan {

class ForwardOnly : public Plan {
 public:
  size_t plan_bytes() const override { return 0; }
  void backward(const BackwardArgs&, Stream) override {}
};

// The first part of the keys gives an fp32 partial result, and the other part is merged with it.
class InParts final : public ForwardOnly {
 public:
  using ShapeOf = std::function<sm90::ForwardShape(const Problem&)>;
  InParts(const Problem& problem, int64_t first_keys, const ShapeOf& shape_of)
      : gpu_(first_gpu()),
        first_(part(problem, {0, first_keys}, true)),
        second_(part(problem, {first_keys, problem.tokens_kv}, problem.fp32_output)),
        first_plan_(first_, shape_of(first_), gpu_),
        second_plan_(second_, shape_of(second_), gpu_),
        o_(static_cast<size_t>(problem.tokens_q * problem.heads_q * problem.dim_v()) * sizeof(float), gpu_),
        lse_(static_cast<size_t>(problem.tokens_q * problem.heads_q) * sizeof(float), gpu_) {}
  size_t workspace_bytes(Direction) const override {
    return std::max(first_plan_.workspace_bytes(), second_plan_.workspace_bytes());
  }
  void forward(const ForwardArgs& args, Stream stream) override {
    ForwardArgs first = args, second = args;
    first.o = TensorView::contiguous(o_.data(), DType::kF32, first_.tokens_q, first_.heads_q, first_.dim_v());
    first.lse = lse_.as<float>();
    first_plan_.run(first_, first, gpu_, stream);
    second.part_o = first.o;
    second.part_lse = first.lse;
    second_plan_.run(second_, second, gpu_, stream);
  }

 private:
  static Problem part(const Problem& whole, Range keys, bool fp32_output) {
    const Mask visible(whole.tokens_q, whole.tokens_kv, std::vector<Band>{{{0, whole.tokens_q}, keys}});
    HeadMasks masks;
    for (const Mask& mask : *whole.masks) masks.push_back(mask.intersected(visible));
    Problem p = whole;
    p.masks = std::make_shared<const HeadMasks>(std::move(masks));
    p.fp32_output = fp32_output;
    return p;
  }

  Device gpu_;
  Problem first_, second_;
  sm90::ForwardPlan first_plan_, second_plan_;
  Buffer o_, lse_;
};

}  // namespace longspan
