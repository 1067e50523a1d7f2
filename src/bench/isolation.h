// What runner and child say to each other: a request down the child's standard input, phases and one answer
// back.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "bench/case.h"
#include "bench/child_process.h"
#include "bench/helper.h"
#include "bench/results.h"
#include "bench/timing_rule.h"
#include "bench/workbench.h"

namespace longspan::bench {

// The name of the hidden command that answers a request.
inline constexpr const char* kChildCommand = "run-case";

// In the child: reads the request from standard input and answers on kResultDescriptor. The exit status.
int answer_request(const Workbench& workbench);

// In the parent. Each starts a child of this same program.
class Isolation {
 public:
  // `variables`: of the children's environment.
  explicit Isolation(SignalGuard& guard, Variables variables = {})
      : guard_(guard), variables_(std::move(variables)) {}

  // The keys of a case's line from `status` on; nothing if the run was interrupted. The helper may be null.
  std::optional<Json> run_case(const Case& c, const Device& device, const TimingRule& rule,
                               const Helper* helper = nullptr);

  // {driver, ceiling: {flops_per_s, what, samples_s}}, or {reason}; nothing if the run was interrupted.
  std::optional<Json> probe(const Device& device, DType dtype, double limit_s);

 private:
  std::optional<Json> ask(const Json& request, double limit_s, const std::vector<int>& inherited = {});

  SignalGuard& guard_;
  Variables variables_;
};

}  // namespace longspan::bench
