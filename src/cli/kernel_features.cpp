#include "cli/kernel_features.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "mask/patterns/patterns.h"

namespace longspan::cli {
namespace {

constexpr int64_t kTokens = 1024;  // the least that every pattern can be drawn at

std::shared_ptr<const HeadMasks> draw(std::string_view pattern, int64_t kv_heads) {
  PatternOptions options;
  options.seqlen = kTokens;
  options.kv_heads = kv_heads;
  return std::make_shared<const HeadMasks>(draw_mask(pattern, options).masks);
}

Problem plainest(DType dtype, int64_t head_dim) {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = kTokens;
  problem.heads_q = problem.heads_kv = 2;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  static const auto causal = draw("causal", 1);
  problem.masks = causal;
  return problem;
}

DirectionFeatures probe_direction(const Kernel& kernel, Direction direction, const Device& device) {
  DirectionFeatures features;
  // What a peer's framework throws at an odd shape is no reason to end the list.
  const auto asked = [&](const Problem& problem) -> Support {
    try {
      return kernel.supports(problem, direction, device);
    } catch (const Error& error) {
      return {error.what()};
    }
  };
  const auto can = [&](const Problem& problem) { return static_cast<bool>(asked(problem)); };

  // Something that it can do, to vary one feature of.
  Problem base;
  for (int64_t head_dim : {128, 64, 256, 32}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Problem problem = plainest(dtype, head_dim);
      if (base.masks == nullptr && can(problem)) base = problem;
    }
  }
  if (base.masks == nullptr) {
    features.reason = asked(plainest(DType::kBF16, 128)).reason;
    return features;
  }

  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Problem problem = base;
    problem.dtype = dtype;
    if (can(problem)) features.dtypes.push_back(dtype);
  }
  for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    Problem problem = base;
    problem.head_dim = head_dim;
    if (can(problem)) features.head_dims.push_back(head_dim);
  }
  for (const Pattern& pattern : patterns()) {
    Problem problem = base;
    problem.masks = draw(pattern.name, problem.heads_kv);
    if (can(problem)) features.masks.push_back(pattern.name);
  }
  Problem grouped = base;
  grouped.heads_q = 4 * base.heads_kv;
  features.grouped = can(grouped);
  Problem rectangular = base;
  rectangular.tokens_q = kTokens / 2;
  const Range rows = {kTokens / 2, kTokens}, columns = {0, kTokens};
  rectangular.masks =
      std::make_shared<const HeadMasks>(HeadMasks{base.masks->front().gather({&rows, 1}, {&columns, 1})});
  features.rectangular = can(rectangular);
  Problem fp32_output = base;
  fp32_output.fp32_output = true;
  features.fp32_output = can(fp32_output);
  Problem deterministic = base;
  deterministic.deterministic = true;
  features.deterministic = can(deterministic);
  return features;
}

Device nominal_hopper() {
  Device device;
  device.kind = DeviceKind::kCuda;
  device.name = "Hopper";
  device.units = 132;
  device.capability = 90;
  device.memory_bytes = size_t{80} << 30;
  device.cache_bytes = size_t{50} << 20;
  return device;
}

}  // namespace

KernelFeatures probe(const Kernel& kernel, std::span<const Device> devices) {
  KernelFeatures features;
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const Device& d) { return d.kind == kernel.device_kind(); });
  const bool here = found != devices.end();
  const Device device = here ? *found : nominal_hopper();
  features.forward = probe_direction(kernel, Direction::kForward, device);
  features.backward = probe_direction(kernel, Direction::kBackward, device);
  if (!here)
    features.reason = no_cuda_reason();
  else if (!features.forward.reason.empty() && !features.backward.reason.empty())
    features.reason = features.forward.reason;
  return features;
}

}  // namespace longspan::cli
