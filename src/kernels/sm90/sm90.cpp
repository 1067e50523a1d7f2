#include "kernels/sm90/sm90.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/cuda/cuda.h"
#include "base/error.h"
#include "kernels/sm90/backward/plan.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/forward/plan.h"
#include "kernels/sm90/forward/planner/map.h"

namespace longspan {
namespace {

class Sm90Plan final : public Plan {
 public:
  Sm90Plan(const Problem& problem, const Device& device, bool with_backward)
      : problem_(problem), device_(device), forward_(problem, device) {
    if (with_backward) backward_.emplace(problem, sm90::choose_backward_shape(problem), device);
  }

  size_t workspace_bytes(Direction direction) const override {
    if (direction == Direction::kForward) return forward_.workspace_bytes();
    return backward_ ? backward_->workspace_bytes() : 0;
  }
  size_t plan_bytes() const override { return forward_.bytes() + (backward_ ? backward_->bytes() : 0); }

  void forward(const ForwardArgs& args, Stream stream) override {
    forward_.run(problem_, args, device_, stream);
  }

  void backward(const BackwardArgs& args, Stream stream) override {
    LONGSPAN_CHECK(backward_.has_value(),
                   "this plan has no backward pass: make it with plan(), not plan_forward()");
    const cuda::DeviceGuard guard(device_.index);
    backward_->run(args, cuda::raw(stream));
  }

 private:
  Problem problem_;
  Device device_;
  sm90::ForwardPlan forward_;
  std::optional<sm90::BackwardPlan> backward_;
};

constexpr int64_t kSmallestTile = 16;  // tokens

// Whether there are instances of both passes for the problem's head dimensions.
bool has_head_dims(const Problem& problem) {
  const int64_t d = problem.head_dim, dv = problem.dim_v();
  return d == 192 ? dv == 128 : (d == 64 || d == 128 || d == 256) && dv == d;
}

class Sm90Kernel final : public Kernel {
 public:
  std::string_view name() const override { return "sm90"; }
  std::string_view description() const override {
    return "ours for Hopper: wgmma, TMA, one kernel for every mask (bf16, f16)";
  }
  DeviceKind device_kind() const override { return DeviceKind::kCuda; }
  bool merges_parts() const override { return true; }
  size_t row_alignment() const override { return 16; }  // of TMA: the address and the strides of a tensor map

  Support supports(const Problem& problem, Direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCuda || device.capability != 90) return {"needs compute capability 9.0"};
    if (problem.dtype != DType::kBF16 && problem.dtype != DType::kF16) return {"needs bf16 or f16"};
    if (!has_head_dims(problem)) return {"needs head_dim 64, 128 or 256, or 192 with head_dim_v 128"};
    if (std::string reason = lacking({.head_dim_v = true}, problem); !reason.empty()) return {reason};
    if (!(problem.softmax_scale() > 0)) return {"needs a positive scale"};
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2,
                      kMostHeads = 2 * kMost >> sm90::kRowBits;
    const int64_t tokens = std::max(problem.tokens_q, problem.tokens_kv);
    if (tokens > kMost || tokens / kSmallestTile * problem.heads_q > kMost || problem.heads_q > kMostHeads)
      return {"has 32-bit tile numbers: too many tokens or heads"};
    return {};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    problem.check();
    return std::make_unique<Sm90Plan>(problem, device, true);
  }
  std::unique_ptr<Plan> plan_forward(const Problem& problem, const Device& device) const override {
    problem.check();
    return std::make_unique<Sm90Plan>(problem, device, false);
  }
};

}  // namespace

const Kernel& sm90_kernel() {
  static const Sm90Kernel kernel;
  return kernel;
}

}  // namespace longspan
