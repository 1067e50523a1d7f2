#include "bench/run/workbench.h"

namespace longspan::bench {

const Kernel* Workbench::find(std::string_view kernel) const {
  for (const Kernel* candidate : kernels) {
    if (candidate->name() == kernel) return candidate;
  }
  return nullptr;
}

std::vector<std::string> Workbench::kernel_names() const {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels) names.emplace_back(kernel->name());
  return names;
}

}  // namespace longspan::bench
