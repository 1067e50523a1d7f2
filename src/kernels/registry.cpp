#include "kernels/registry.h"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/naive.h"
#ifdef LONGSPAN_WITH_CUDA
#include "kernels/gpu_naive/gpu_naive.h"
#include "kernels/peers/peers.h"
#include "kernels/sm90/sm90.h"
#endif

namespace longspan {

std::span<const Kernel* const> kernels() {
  static const std::vector<const Kernel*> table = [] {
    std::vector<const Kernel*> all = {
        &cpu_naive(),
        &cpu_flash(),
#ifdef LONGSPAN_WITH_CUDA
        &gpu_naive(),
        &sm90_kernel(),
#endif
    };
#ifdef LONGSPAN_WITH_CUDA
    all.insert(all.end(), peer_kernels().begin(), peer_kernels().end());
#endif
    return all;
  }();
  return table;
}

std::string_view kernels_left_out() {
#ifdef LONGSPAN_WITH_CUDA
  return "";
#else
  return "those for GPUs (sm90, gpu-naive, the peers of docs/peers.md) need a build with -DLONGSPAN_CUDA=ON";
#endif
}

const Kernel& kernel_from_name(std::string_view name) {
  std::string names;
  for (const Kernel* kernel : kernels()) {
    if (kernel->name() == name) return *kernel;
    if (!names.empty()) names.append(", ");
    names.append(kernel->name());
  }
  const std::string left_out = kernels_left_out().empty() ? "" : fmt::format("; {}", kernels_left_out());
  LONGSPAN_CHECK_INPUT(false, "kernel '{}' is unknown; the kernels of this build are {}{}", name, names,
                       left_out);
  return *kernels().front();
}

}  // namespace longspan
