#include "emulated_plan.h"

#include <utility>

#include "base/error.h"
#include "emulated_isa.h"
#include "kernels/portable/arrangement.h"
#include "kernels/portable/forward.h"
#include "kernels/portable/tuning/generic.h"

namespace longspan::portable {
namespace {

template <class C>
void emulate_forward(const ForwardParams& params, uint32_t shared_bytes) {
  run_grid(params.order.items(), C::kThreads, shared_bytes, [&] { Forward<EmulatedIsa, C>(params).run(); });
}

template <class Element, size_t... kIndex>
void emulate_forward(const ForwardShape& shape, const ForwardParams& params, std::index_sequence<kIndex...>) {
  const bool found = ((shape == generic::kForwardShapes[kIndex] &&
                       (emulate_forward<ForwardConfig<Element, generic::kForwardShapes[kIndex]>>(
                            params, shape.shared_bytes()),
                        true)) ||
                      ...);
  LONGSPAN_CHECK(found, "no instance has this shape");
}

Device gpu_of(int capability) {
  Device device;
  device.kind = DeviceKind::kCuda;
  device.capability = capability;
  device.cache_bytes = 64 << 10;  // several sections
  return device;
}

class EmulatedPlan final : public Plan {
 public:
  EmulatedPlan(const Problem& problem, const Device& device)
      : problem_(problem),
        forward_(arrange_forward(problem, choose_forward_shape(problem, device), device)) {}

  size_t workspace_bytes(Direction) const override { return 0; }
  size_t plan_bytes() const override { return 0; }

  void forward(const ForwardArgs& args, Stream) override {
    const ForwardParams params = forward_params(problem_, forward_, view_of(forward_.map), args);
    constexpr auto kAll = std::make_index_sequence<std::size(generic::kForwardShapes)>();
    if (problem_.dtype == DType::kBF16)
      emulate_forward<Bf16>(forward_.shape, params, kAll);
    else
      emulate_forward<F16>(forward_.shape, params, kAll);
  }
  void backward(const BackwardArgs&, Stream) override {}

 private:
  Problem problem_;
  ForwardArrangement forward_;
};

}  // namespace

std::unique_ptr<Plan> emulated_plan(const Problem& problem, int capability) {
  return std::make_unique<EmulatedPlan>(problem, gpu_of(capability));
}

}  // namespace longspan::portable
