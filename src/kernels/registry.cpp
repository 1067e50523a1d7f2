#include "kernels/registry.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/naive.h"
#ifdef LONGSPAN_WITH_CUDA
#include "kernels/gpu_naive/gpu_naive.h"
#endif
#ifdef LONGSPAN_WITH_PORTABLE
#include "kernels/portable/portable.h"
#endif
#ifdef LONGSPAN_WITH_SM90
#include "kernels/sm90/sm90.h"
#endif

namespace longspan {
namespace {

KernelRow row(const char* name, const char* colour, int preference, const Kernel* kernel) {
  KernelRow row;
  row.name = name;
  row.colour = colour;
  row.preference = preference;
  row.kernel = kernel;
  return row;
}

// `architecture`: the one that its sources are compiled for, where it has one of its own.
[[maybe_unused]] KernelRow lacking(const char* name, const char* colour, int preference,
                                   const char* architecture = "") {
  KernelRow lacking = row(name, colour, preference, nullptr);
#ifdef LONGSPAN_WITH_CUDA
  lacking.reason = fmt::format("not in this build (no sm_{})", architecture);
  lacking.remedy = fmt::format("configure with {} among -DCMAKE_CUDA_ARCHITECTURES", architecture);
#else
  static_cast<void>(architecture);
  lacking.reason = "not in this build (no CUDA)";
  lacking.remedy = "configure with -DLONGSPAN_CUDA=ON";
#endif
  return lacking;
}

}  // namespace

std::span<const KernelRow> kernel_rows() {
  static const std::vector<KernelRow> rows = {
      row("cpu-naive", "#626a75", 0, &cpu_naive()),      row("cpu-flash", "#0b62a8", 1, &cpu_flash()),
#ifdef LONGSPAN_WITH_CUDA
      row("gpu-naive", "#626a75", 0, &gpu_naive()),
#else
      lacking("gpu-naive", "#626a75", 0),
#endif
#ifdef LONGSPAN_WITH_PORTABLE
      row("portable", "#7a3fa0", 1, &portable_kernel()),
#else
      lacking("portable", "#7a3fa0", 1, "80"),
#endif
#ifdef LONGSPAN_WITH_SM90
      row("sm90", "#c8500a", 2, &sm90_kernel()),
#else
      lacking("sm90", "#c8500a", 2, "90a"),
#endif
  };
  return rows;
}

std::span<const Kernel* const> kernels() {
  static const std::vector<const Kernel*> here = [] {
    std::vector<const Kernel*> found;
    for (const KernelRow& row : kernel_rows()) {
      if (row.kernel != nullptr) found.push_back(row.kernel);
    }
    return found;
  }();
  return here;
}

std::vector<KernelRow> preferred_rows() {
  std::vector<KernelRow> rows;
  std::copy_if(kernel_rows().begin(), kernel_rows().end(), std::back_inserter(rows),
               [](const KernelRow& row) { return row.preference > 0; });
  std::stable_sort(rows.begin(), rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.preference > b.preference; });
  return rows;
}

const Kernel& kernel_from_name(std::string_view name, std::span<const Kernel* const> among,
                               std::span<const KernelRow> rows) {
  std::vector<std::string> names;
  for (const Kernel* kernel : among) {
    if (kernel->name() == name) return *kernel;
    names.emplace_back(kernel->name());
  }
  const std::string lacking = lacking_message(name, rows);
  LONGSPAN_CHECK_INPUT(lacking.empty(), "{}", lacking);
  LONGSPAN_CHECK_INPUT(false, "kernel '{}' is unknown{}; the kernels of this build are {}", name,
                       did_you_mean(name, names), fmt::join(names, ", "));
  return *among.front();
}

}  // namespace longspan
