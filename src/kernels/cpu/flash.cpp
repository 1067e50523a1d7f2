#include "kernels/cpu/flash.h"

#include "base/error.h"
#include "kernels/cpu/flash_plan.h"

namespace longspan {

namespace {

class CpuFlash final : public Kernel {
 public:
  std::string_view name() const override { return "cpu-flash"; }
  std::string_view description() const override {
    return "CPU, tiled online softmax on all threads; f32, bf16, f16; head_dim to 256; memory O(S)";
  }
  DeviceKind device_kind() const override { return DeviceKind::kCpu; }

  Support supports(const Problem& problem, Direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCpu) return {"runs on the CPU only"};
    if (problem.dtype == DType::kF64) return {"needs dtype f32, bf16 or f16"};
    if (problem.head_dim % 8 != 0 || problem.head_dim > 256) {
      return {fmt::format("needs head_dim a multiple of 8 up to 256, not {}", problem.head_dim)};
    }
    if (problem.dim_v() % 8 != 0 || problem.dim_v() > 256)
      return {fmt::format("needs head_dim_v a multiple of 8 up to 256, not {}", problem.dim_v())};
    return {lacking({.head_dim_v = true, .softcap = true, .alibi = true}, problem)};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device&) const override {
    return plan_cpu_flash(problem, preferred_gemm_library());
  }
};

}  // namespace

const Kernel& cpu_flash() {
  static const CpuFlash kernel;
  return kernel;
}

std::unique_ptr<Plan> plan_cpu_flash(const Problem& problem, GemmLibrary library) {
  return std::make_unique<FlashPlan>(problem, library);
}

}  // namespace longspan
