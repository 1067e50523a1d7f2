// The interface of an attention kernel. Plan is declared in the public header.
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

// Empty if supported; otherwise the reason shown to the user: "needs heads_q == heads_kv".
struct Support {
  std::string reason;
  bool always = false;  // the kernel cannot run on this machine, whatever the problem
  explicit operator bool() const { return reason.empty(); }
};

// What a kernel does beyond plain attention.
struct Features {
  bool head_dim_v = false;  // another head_dim of v than of q and k
  bool softcap = false;
  bool alibi = false;
  bool sinks = false;
};

// The first of these features that the problem needs and the kernel lacks, as a reason; "" if there is none.
std::string lacking(const Features& features, const Problem& problem);

// Additional interface of plans whose work runs in another process, where the runner's events cannot time it.
class SelfTimed {
 public:
  virtual ~SelfTimed() = default;

  // Times a pass by the runner's rule (cold cache on request, launches hidden, device events) on the tensors
  // of the last forward() or backward(), whose results stay unchanged. Runs at least once and at most `count`
  // times without a rest. Calls `meanwhile` while it runs.
  virtual std::vector<double> times_s(Direction direction, bool cold_cache, int64_t count,
                                      const std::function<void()>& meanwhile) = 0;

  // The next forward() or backward() is one sample of times_s(), and gives what that sample computed. With it
  // the caller verifies that a timed run computes at all.
  virtual void time_next_run(bool cold_cache) = 0;

  // The planning time in that process, without compilation.
  virtual double plan_s() const = 0;

  // Peak memory in that process during the last forward() or backward(), beyond inputs, outputs and the plan.
  virtual size_t peak_bytes(Direction direction) const = 0;
};

// Facts recorded beside a result: the options that a kernel chose, the versions it uses, and its setup cost
// per process (not per mask).
struct PlanNotes {
  std::string settings;
  std::map<std::string, std::string> versions;  // packages of another framework
  double compile_s = 0;                         // compilation and tuning so far, during the first runs
  // If not 0: after each `drift_keys` keys the kernel multiplies a row's sum by a rounded 1. Only lse shows
  // the effect (docs/concepts/proof.md, "The tolerance").
  int64_t drift_keys = 0;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string_view name() const = 0;         // "cpu-flash"
  virtual std::string_view description() const = 0;  // one line for `longspan list kernels`
  virtual DeviceKind device_kind() const = 0;

  // Whether this kernel can run the problem on the device. A kernel never falls back to another algorithm.
  virtual Support supports(const Problem& problem, Direction direction, const Device& device) const = 0;

  virtual bool merges_parts() const { return false; }  // accepts ForwardArgs::part_o
  // Whether supports() may accept Problem::sinks, as peers do. Plans of other kernels take ForwardArgs::sinks
  // and BackwardArgs::sinks, but for those over ranks.
  virtual bool takes_sinks() const { return false; }
  virtual size_t row_alignment() const { return 1; }  // that it needs of tensors' rows, in bytes

  // Does the once-per-mask work for all directions that the kernel supports; timed apart from the kernel.
  // Throws an Error of kind kUnsupported if a limit shows up only during planning.
  virtual std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const = 0;

  // Plans a forward pass only, which may be cheaper.
  virtual std::unique_ptr<Plan> plan_forward(const Problem& problem, const Device& device) const {
    return plan(problem, device);
  }
};

}  // namespace longspan
