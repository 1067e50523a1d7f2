#include "emulated_plan.h"

#include "attention/sinks.h"
#include "emulated_isa.h"
#include "kernels/portable/arrangement.h"
#include "kernels/portable/backward.h"
#include "kernels/portable/choose_shape.h"
#include "kernels/portable/forward.h"
#include "kernels/portable/instances.h"
#include "kernels/portable/passes.h"

namespace longspan::portable {
namespace {

template <class Element, bool kChangesScores>
void emulate_forward(const ForwardShape& shape, const ForwardParams& params) {
  with_instance(kForwardInstances, shape, [&](auto index) {
    using C = ForwardConfig<Element, kForwardInstances[index], kChangesScores>;
    run_grid(params.order.items(), C::kThreads, shape.shared_bytes(),
             [&] { Forward<EmulatedIsa, C>(params).run(); });
  });
}

template <class Element, bool kChangesScores>
void emulate_backward(const BackwardShape& shape, const BackwardParams& params) {
  const int64_t tiles = int64_t{params.heads.units()} * params.query_tiles;
  run_grid(tiles, kPassThreads, 4, [&] { prepare_rows<EmulatedIsa, Element>(params); });
  with_instance(kBackwardInstances, shape, [&](auto index) {
    using C = BackwardConfig<Element, kBackwardInstances[index], kChangesScores>;
    run_grid(params.order.items(), C::kThreads, shape.shared_bytes(),
             [&] { Backward<EmulatedIsa, C>(params).run(); });
  });
  run_grid(tiles, kPassThreads, 4, [&] { finish_rows<EmulatedIsa, Element>(params); });
}

Device gpu_of(int capability) {
  Device device;
  device.kind = DeviceKind::kCuda;
  device.capability = capability;
  device.cache_bytes = 64 << 10;  // several sections
  device.units = 8;               // several pieces of a tile of keys
  return device;
}

class EmulatedPlan final : public Plan {
 public:
  EmulatedPlan(const Problem& problem, const Device& device)
      : problem_(problem),
        forward_(arrange_forward(problem, choose_forward_shape(problem, device), device)),
        backward_(arrange_backward(problem, choose_backward_shape(problem, device), device)) {}

  size_t workspace_bytes(Direction direction) const override {
    return direction == Direction::kForward ? 0 : backward_.workspace.bytes;
  }
  size_t plan_bytes() const override { return 0; }

  void forward(const ForwardArgs& args, Stream) override {
    const ForwardParams params =
        forward_params(problem_, forward_, view_of(forward_.map), args, problem_.alibi_slopes.data());
    with_policy(problem_.dtype, params.change, [&](auto element, auto changes) {
      emulate_forward<decltype(element), decltype(changes)::value>(forward_.shape, params);
    });
  }
  void backward(const BackwardArgs& args, Stream) override {
    const BackwardParams params =
        backward_params(problem_, backward_, view_of(backward_.map), args, problem_.alibi_slopes.data());
    with_policy(problem_.dtype, params.change, [&](auto element, auto changes) {
      emulate_backward<decltype(element), decltype(changes)::value>(backward_.shape, params);
    });
    finish_sinks(args, cpu_device(), Stream{});  // on a GPU, a kernel does it
  }

 private:
  Problem problem_;
  ForwardArrangement forward_;
  BackwardArrangement backward_;
};

}  // namespace

std::unique_ptr<Plan> emulated_plan(const Problem& problem, int capability) {
  return std::make_unique<EmulatedPlan>(problem, gpu_of(capability));
}

}  // namespace longspan::portable
