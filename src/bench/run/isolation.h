// Runs cases in separate processes: the runner sends a request, and the process answers (messages.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench/case/helper.h"
#include "bench/case/workbench.h"
#include "bench/run/child_process.h"
#include "bench/run/messages.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"
#include "comm/rendezvous.h"

namespace longspan::bench {

// The name of the hidden command that answers a request.
inline constexpr const char* kChildCommand = "run-case";

// Measures a case in this process. If it is one rank of several, `alarm` reports that another rank has died.
CaseAnswer run_case_here(const Workbench& workbench, Testbed& testbed, const Case& c, const TimingRule& rule,
                         const Phase& phase, Alarm* alarm = nullptr);

// In the child: reads requests from standard input, a socket, and answers each on kResultDescriptor until
// the input ends. Returns the exit status.
int answer_requests(const Workbench& workbench);

// In the parent. A child runs this same program and serves one case after another, since opening a GPU takes
// longer than a short case. A failed case ends its child, and the next case gets a new one. Probes and cases
// with several ranks each get their own child.
class Isolation {
 public:
  // `variables`: set in the environment of the children.
  explicit Isolation(SignalGuard& guard, Variables variables = {});
  ~Isolation();

  // nullopt if the run was interrupted. The helper may be null.
  std::optional<CaseAnswer> run_case(const Case& c, const Device& device, const TimingRule& rule,
                                     const Helper* helper = nullptr);

  // Whether the last case failed in a process that had served other cases, which may be the cause.
  bool in_doubt() const { return in_doubt_; }

  // nullopt if the run was interrupted.
  std::optional<ProbeAnswer> probe(const Device& device, DType dtype, double limit_s);

 private:
  // What one child answered, and how it ended.
  struct Exchange;
  Exchange ask(ChildProcess& child, const Request& request, double limit_s,
               const std::vector<int>& descriptors);
  std::unique_ptr<ChildProcess> start() const;
  Exchange ask_alone(const Request& request, double limit_s, const std::vector<int>& descriptors);

  SignalGuard& guard_;
  Variables variables_;
  std::unique_ptr<ChildProcess> kept_;
  bool in_doubt_ = false;
};

}  // namespace longspan::bench
