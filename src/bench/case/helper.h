// A process that serves all cases of one kernel because it takes seconds to start, such as a peer's worker.
// The process of a case communicates with the helper. A helper is ended after a failed case.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "base/spawn_environment.h"

namespace longspan::bench {

class Helper {
 public:
  virtual ~Helper() = default;  // ends it

  // Connections to the helper, for the process of a case.
  virtual std::vector<int> descriptors() const = 0;

  // "was killed by signal 9 (Killed)"; empty while it runs.
  virtual std::string how_it_ended() = 0;
};

struct Helpers {
  // Called in the runner. `early_ends`: how many earlier helpers of this kernel ended although their cases
  // did not fail. `variables`: set in its environment. Null if the kernel has no helper, or may have no more.
  std::function<std::unique_ptr<Helper>(const Kernel& kernel, size_t early_ends, const Variables& variables)>
      start;

  // Called in the process of a case before the case: takes over the descriptors. They are empty if the case
  // has no helper.
  std::function<void(const Kernel& kernel, const std::vector<int>& descriptors)> adopt;
};

}  // namespace longspan::bench
