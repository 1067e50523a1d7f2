// The interface of an attention kernel. Its plan is in the public header.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"
#include "longspan/attention.h"

namespace longspan {

// Empty: yes. Otherwise why not, in words for the user: "needs heads_q == heads_kv".
struct Support {
  std::string reason;
  bool always = false;  // whatever the problem: the kernel cannot run on this machine
  explicit operator bool() const { return reason.empty(); }
};

// What a plan is, too, if its work runs in another process, where the runner's events do not reach.
class SelfTimed {
 public:
  virtual ~SelfTimed() = default;

  // Times a pass by the runner's rule (cold cache if asked for, launches hidden, device events) on the
  // tensors of the last forward() or backward(), whose results stay as they are: at most `count` times in a
  // row without a rest, and at least once. `meanwhile` is called while it runs.
  virtual std::vector<double> times_s(Direction direction, bool cold_cache, int64_t count,
                                      const std::function<void()>& meanwhile) = 0;

  // What planning took there, without compilation.
  virtual double plan_s() const = 0;

  // In the other process, beyond inputs, outputs and the plan: the peak of the last forward() or backward().
  virtual size_t peak_bytes(Direction direction) const = 0;
};

// For the record beside a result: which of its options a kernel chose, what it is made of, and what it took
// once in a process, not once a mask, to make it ready.
struct PlanNotes {
  std::string settings;
  std::map<std::string, std::string> versions;  // of another framework's packages
  double compile_s = 0;                         // compilation and tuning in the first runs so far
  // Not 0: after each so many keys the kernel multiplies a row's sum by a rounded 1, which shows in lse alone
  // (docs/concepts/proof.md, "The tolerance").
  int64_t drift_keys = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;         // "cpu-flash"
  virtual std::string_view description() const = 0;  // one line for `longspan list kernels`
  virtual DeviceKind device_kind() const = 0;

  // Can this kernel do this on that device at all? Never by falling back to another algorithm.
  virtual Support supports(const Problem& problem, Direction direction, const Device& device) const = 0;

  virtual bool merges_parts() const { return false; }  // takes ForwardArgs::part_o

  // The once-per-mask work for the directions that the kernel supports; timed apart from the kernel. Throws
  // an Error of kind kUnsupported where only planning shows that it cannot.
  virtual std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const = 0;

  // The same for a forward pass alone, for which there may be less to do.
  virtual std::unique_ptr<Plan> plan_forward(const Problem& problem, const Device& device) const {
    return plan(problem, device);
  }
};

}  // namespace longspan
