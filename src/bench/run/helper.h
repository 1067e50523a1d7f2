// A process that serves the cases of one kernel one after the other, since starting it costs seconds: a
// peer's worker. The process that runs the case speaks to the helper; no helper outlives a case that failed.
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

  // To speak to it: what the process of its case is handed.
  virtual std::vector<int> descriptors() const = 0;

  // "was ended by signal 9 (Killed)"; empty while it lives.
  virtual std::string how_it_ended() = 0;
};

struct Helpers {
  // In the runner. `useless`: how many for this kernel ended of themselves before, though their cases did not
  // fail: they could not serve. `variables`: of its environment. Null if the kernel has none, or none any
  // more.
  std::function<std::unique_ptr<Helper>(const Kernel& kernel, size_t useless, const Variables& variables)>
      start;

  // In the process of a case, before it: the descriptors there, its own from now on; none if the case has no
  // helper.
  std::function<void(const Kernel& kernel, const std::vector<int>& descriptors)> adopt;
};

}  // namespace longspan::bench
