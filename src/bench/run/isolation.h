// Cases in processes of their own: the runner asks, the process of a case answers (messages.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench/run/child_process.h"
#include "bench/run/helper.h"
#include "bench/run/messages.h"
#include "bench/run/workbench.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"
#include "comm/rendezvous.h"

namespace longspan::bench {

// The name of the hidden command that answers a request.
inline constexpr const char* kChildCommand = "run-case";

// Measures a case in this very process. Where that is one rank of several, `alarm` tells of others' deaths.
CaseAnswer run_case_here(const Workbench& workbench, Testbed& testbed, const Case& c, const TimingRule& rule,
                         const Phase& phase, Alarm* alarm = nullptr);

// In the child: reads requests from standard input, a socket, and answers each on kResultDescriptor, until
// there are no more. The exit status.
int answer_requests(const Workbench& workbench);

// In the parent. Children are of this same program. One serves case after case of a device, since it takes
// longer to get hold of a GPU than to measure a short case on it; but none outlives a case that failed, and
// a case of several ranks, like a probe, has one of its own.
class Isolation {
 public:
  // `variables`: of the children's environment.
  explicit Isolation(SignalGuard& guard, Variables variables = {});
  ~Isolation();

  // Nothing if the run was interrupted. The helper may be null.
  std::optional<CaseAnswer> run_case(const Case& c, const Device& device, const TimingRule& rule,
                                     const Helper* helper = nullptr);

  // Did the last case fail in a process that had served others before, so that the fault may be theirs?
  bool in_doubt() const { return in_doubt_; }

  // Nothing if the run was interrupted.
  std::optional<ProbeAnswer> probe(const Device& device, DType dtype, double limit_s);

 private:
  // A conversation with one child.
  struct Told;
  Told ask(ChildProcess& child, const Request& request, double limit_s, const std::vector<int>& descriptors);
  std::unique_ptr<ChildProcess> start() const;
  Told ask_alone(const Request& request, double limit_s, const std::vector<int>& descriptors);

  SignalGuard& guard_;
  Variables variables_;
  std::unique_ptr<ChildProcess> kept_;
  bool in_doubt_ = false;
};

}  // namespace longspan::bench
