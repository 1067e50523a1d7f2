#include "kernels/registry.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/naive.h"
#ifdef LONGSPAN_WITH_CUDA
#include "kernels/gpu_naive/gpu_naive.h"
#include "kernels/sm90/sm90.h"
#endif

namespace longspan {

std::span<const Kernel* const> kernels() {
  static const std::vector<const Kernel*> table = {
      &cpu_naive(),
      &cpu_flash(),
#ifdef LONGSPAN_WITH_CUDA
      &gpu_naive(),
      &sm90_kernel(),
#endif
  };
  return table;
}

std::span<const Kernel* const> fast_kernels() {
  static const std::vector<const Kernel*> table = {
#ifdef LONGSPAN_WITH_CUDA
      &sm90_kernel(),
#endif
      &cpu_flash(),
  };
  return table;
}

std::string_view kernels_left_out() {
#ifdef LONGSPAN_WITH_CUDA
  return "";
#else
  return "those for GPUs (sm90, gpu-naive, the peers of docs/guide/peers.md) need -DLONGSPAN_CUDA=ON";
#endif
}

const Kernel& kernel_from_name(std::string_view name, std::span<const Kernel* const> among) {
  std::string names;
  for (const Kernel* kernel : among) {
    if (kernel->name() == name) return *kernel;
    if (!names.empty()) names.append(", ");
    names.append(kernel->name());
  }
  const std::string left_out = kernels_left_out().empty() ? "" : fmt::format("; {}", kernels_left_out());
  LONGSPAN_CHECK_INPUT(false, "kernel '{}' is unknown; the kernels of this build are {}{}", name, names,
                       left_out);
  return *among.front();
}

}  // namespace longspan
