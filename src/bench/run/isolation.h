// Runs cases in processes apart: the runner sends a request, the process answers (messages.h).
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

// Measures a case in this process. Where it is one rank of several, `alarm` reports that another rank has
// died.
CaseAnswer run_case_here(const Workbench& workbench, Testbed& testbed, const Case& c, const TimingRule& rule,
                         const Phase& phase, Alarm* alarm = nullptr);

// In the child: reads requests from standard input, a socket, and answers each on kResultDescriptor, until
// there are no more. Returns the exit status.
int answer_requests(const Workbench& workbench);

// In the parent. A child runs this same program and serves case after case, since opening a GPU takes longer
// than a short case. After a failed case there is a new child. A probe and a case of several ranks have a
// child of their own.
class Isolation {
 public:
  // `variables`: set in the environment of the children.
  explicit Isolation(SignalGuard& guard, Variables variables = {});
  ~Isolation();

  // Nothing if the run was interrupted. The helper may be null.
  std::optional<CaseAnswer> run_case(const Case& c, const Device& device, const TimingRule& rule,
                                     const Helper* helper = nullptr);

  // Whether the last case failed in a process that had served others before: those may be the cause.
  bool in_doubt() const { return in_doubt_; }

  // Nothing if the run was interrupted.
  std::optional<ProbeAnswer> probe(const Device& device, DType dtype, double limit_s);

 private:
  // What one child said, and how it ended.
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
