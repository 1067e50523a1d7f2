#include "api/checked_plan.h"

#include "attention/arguments.h"
#include "base/error.h"
#include "base/standard_errors.h"

namespace longspan {
namespace {

class CheckedPlan final : public Plan {
 public:
  CheckedPlan(const Kernel& kernel, const Problem& problem, const Device& device, Direction until)
      : kernel_(kernel),
        problem_(problem),
        device_(device),
        until_(until),
        plan_(until == Direction::kForward ? kernel.plan_forward(problem, device)
                                           : kernel.plan(problem, device)) {}

  size_t workspace_bytes(Direction direction) const override { return plan_->workspace_bytes(direction); }
  size_t plan_bytes() const override { return plan_->plan_bytes(); }
  SelfTimed* self_timed() override { return plan_->self_timed(); }
  PlanNotes notes() const override { return plan_->notes(); }

  void forward(const ForwardArgs& args, Stream stream) override {
    check(args, problem_, rules(Direction::kForward));
    standard_errors([&] { plan_->forward(args, stream); });
  }

  void backward(const BackwardArgs& args, Stream stream) override {
    LONGSPAN_CHECK_INPUT(until_ == Direction::kBackward,
                         "the plan has no backward pass; make it with Direction::kBackward");
    check(args, problem_, rules(Direction::kBackward));
    standard_errors([&] { plan_->backward(args, stream); });
  }

 private:
  ArgumentRules rules(Direction direction) const {
    return {.kernel = kernel_.name(),
            .workspace_bytes = plan_->workspace_bytes(direction),
            .alignment = kernel_.row_alignment(),
            .merges_parts = kernel_.merges_parts(),
            .device = device_};
  }

  const Kernel& kernel_;
  const Problem problem_;
  const Device device_;
  const Direction until_;
  const std::unique_ptr<Plan> plan_;
};

}  // namespace

std::unique_ptr<Plan> checked_plan(const Kernel& kernel, const Problem& problem, const Device& device,
                                   Direction until) {
  return standard_errors([&] { return std::make_unique<CheckedPlan>(kernel, problem, device, until); });
}

}  // namespace longspan
