#include "kernels/registry.h"

#include <string>

#include "base/error.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/naive.h"
#ifdef LONGSPAN_WITH_CUDA
#include "kernels/gpu_naive/gpu_naive.h"
#endif

namespace longspan {

std::span<const Kernel* const> kernels() {
  static const Kernel* const table[] = {
      &cpu_naive(),
      &cpu_flash(),
#ifdef LONGSPAN_WITH_CUDA
      &gpu_naive(),
#endif
  };
  return table;
}

const Kernel& kernel_from_name(std::string_view name) {
  std::string names;
  for (const Kernel* kernel : kernels()) {
    if (kernel->name() == name) return *kernel;
    if (!names.empty()) names.append(", ");
    names.append(kernel->name());
  }
  LONGSPAN_CHECK_INPUT(false, "kernel '{}' is unknown; the kernels of this build are {}", name, names);
  return *kernels().front();
}

}  // namespace longspan
