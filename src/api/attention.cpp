// Plans by name, over the table of kernels.
#include "longspan/attention.h"

#include "api/checked_plan.h"
#include "api/find_kernel.h"
#include "base/error.h"
#include "kernels/registry.h"

namespace longspan {
namespace {

void check_call(const Problem& problem, Direction direction) {
  problem.check();
  LONGSPAN_CHECK_INPUT(direction == Direction::kForward || direction == Direction::kBackward,
                       "direction is {}; must be kForward or kBackward", static_cast<int>(direction));
}

Support supports_until(const Kernel& kernel, const Problem& problem, Direction until, const Device& device) {
  Support support = kernel.supports(problem, Direction::kForward, device);
  if (support && until == Direction::kBackward)
    support = kernel.supports(problem, Direction::kBackward, device);
  return support;
}

// The most preferred of the table that can do it.
const Kernel& fastest(const Problem& problem, Direction until, const Device& device) {
  std::string reasons, lacking;
  const auto add = [](std::string& list, const KernelRow& row, const std::string& reason) {
    list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", row.name, reason);
  };
  for (const KernelRow& row : preferred_rows()) {
    if (row.kernel == nullptr) add(lacking, row, row.reason);
    if (row.kernel == nullptr || row.kernel->device_kind() != device.kind) continue;
    const Support support = supports_until(*row.kernel, problem, until, device);
    if (support) return *row.kernel;
    add(reasons, row, support.reason);
  }
  if (reasons.empty()) reasons = lacking.empty() ? "there is none for this device" : lacking;
  throw Error(ErrorKind::kUnsupported, fmt::format("no kernel on {} can do this ({})", device.name, reasons),
              __FILE__, __LINE__, "a kernel supports the problem");
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Problem& problem, const Device& device, Direction until,
                                std::string_view kernel_name) {
  return checked_plan(find_kernel(problem, device, until, kernel_name), problem, device, until);
}

const Kernel& find_kernel(const Problem& problem, const Device& device, Direction until,
                          std::string_view name) {
  check_call(problem, until);
  if (name == "auto") return fastest(problem, until, device);
  const Kernel& kernel = kernel_from_name(name);
  const Support support = supports_until(kernel, problem, until, device);
  if (!support) {
    throw Error(ErrorKind::kUnsupported, fmt::format("{} cannot do this: {}", name, support.reason), __FILE__,
                __LINE__, "kernel.supports(problem)");
  }
  return kernel;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels()) names.emplace_back(kernel->name());
  return names;
}

std::string unsupported_reason(std::string_view kernel, const Problem& problem, Direction direction,
                               const Device& device) {
  check_call(problem, direction);
  return kernel_from_name(kernel).supports(problem, direction, device).reason;
}

}  // namespace longspan
