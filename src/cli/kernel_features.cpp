// Probes kernels with small problems that differ in one feature.
#include "cli/kernel_features.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "mask/patterns/patterns.h"

namespace longspan::cli {
namespace {

constexpr int64_t kTokens = 1024;  // the shortest length at which every pattern can be drawn

// A pattern to probe. Block-sparse kernels support only some block sizes.
struct Probe {
  const Pattern* pattern;
  std::optional<int64_t> block_size;
};

// The plainest pattern comes first. A kernel that supports it is probed with it for all other features.
const std::vector<Probe>& probes() {
  static const std::vector<Probe> all = [] {
    std::vector<Probe> list = {{&pattern_from_name(kPlainestPattern), {}}};
    for (const Pattern& pattern : patterns()) {
      if (pattern.name == kPlainestPattern) continue;
      if (pattern.block_size.empty()) {
        list.push_back({&pattern, {}});
        continue;
      }
      for (const int64_t size : kProbedBlocks) list.push_back({&pattern, size});
    }
    return list;
  }();
  return all;
}

constexpr int64_t kHeads = 2;

std::shared_ptr<const HeadMasks> draw(const Probe& probe) {
  PatternOptions options;
  options.seqlen = kTokens;
  options.kv_heads = kHeads;
  if (probe.block_size) options.values.set(probe.pattern->block_size, *probe.block_size);
  if (probe.pattern->suit_length != nullptr) probe.pattern->suit_length(options);
  return std::make_shared<const HeadMasks>(draw_mask(probe.pattern->name, options).masks);
}

// One mask per probe, drawn once for all kernels.
const std::vector<std::shared_ptr<const HeadMasks>>& drawn_masks() {
  static const std::vector<std::shared_ptr<const HeadMasks>> all = [] {
    std::vector<std::shared_ptr<const HeadMasks>> masks;
    for (const Probe& probe : probes()) masks.push_back(draw(probe));
    return masks;
  }();
  return all;
}

Problem plain_problem(DType dtype, int64_t head_dim, size_t probe = 0) {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = kTokens;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  problem.masks = drawn_masks()[probe];
  return problem;
}

DirectionFeatures probe_direction(const Kernel& kernel, Direction direction, const Device& device) {
  DirectionFeatures features;
  bool never = false;  // whatever the problem
  // A peer's framework may throw on an unusual shape, which must not end the listing.
  const auto support_of = [&](const Problem& problem) -> Support {
    try {
      Support support = kernel.supports(problem, direction, device);
      never = never || support.always;
      return support;
    } catch (const Error& error) {
      return {error.what()};
    }
  };
  const auto supported = [&](const Problem& problem) {
    return !never && static_cast<bool>(support_of(problem));
  };

  // A supported problem, of which one feature at a time is varied.
  Problem base;
  for (int64_t head_dim : {128, 64, 256, 32}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (size_t probe = 0; probe < probes().size() && base.masks == nullptr; ++probe) {
        const Problem problem = plain_problem(dtype, head_dim, probe);
        if (supported(problem)) base = problem;
      }
    }
  }
  if (base.masks == nullptr) {
    features.reason = support_of(plain_problem(DType::kBF16, 128)).reason;
    return features;
  }

  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Problem problem = base;
    problem.dtype = dtype;
    if (supported(problem)) features.dtypes.push_back(dtype);
  }
  for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    Problem problem = base;
    problem.head_dim = head_dim;
    if (supported(problem)) features.head_dims.push_back(head_dim);
  }
  std::set<int64_t> block_sizes;
  for (const Pattern& pattern : patterns()) {
    bool taken = false;
    for (size_t i = 0; i < probes().size(); ++i) {
      if (probes()[i].pattern != &pattern) continue;
      Problem problem = base;
      problem.masks = drawn_masks()[i];
      if (!supported(problem)) continue;
      taken = true;
      if (probes()[i].block_size) block_sizes.insert(*probes()[i].block_size);
    }
    if (taken) features.masks.push_back(pattern.name);
  }
  features.block_sizes.assign(block_sizes.begin(), block_sizes.end());
  Problem grouped = base;
  grouped.heads_q = 4 * base.heads_kv;
  features.grouped = supported(grouped);
  Problem rectangular = base;
  rectangular.tokens_q = kTokens / 2;
  const Range rows = {kTokens / 2, kTokens}, columns = {0, kTokens};
  rectangular.masks =
      std::make_shared<const HeadMasks>(HeadMasks{base.masks->front().gather({&rows, 1}, {&columns, 1})});
  features.rectangular = supported(rectangular);
  Problem fp32_output = base;
  fp32_output.fp32_output = true;
  features.fp32_output = supported(fp32_output);
  Problem deterministic = base;
  deterministic.deterministic = true;
  features.deterministic = supported(deterministic);
  Problem lse_gradient = base;
  lse_gradient.lse_gradient = true;
  features.lse_gradient = supported(lse_gradient);
  Problem head_dim_v = base;
  head_dim_v.head_dim_v = base.head_dim / 2;
  features.head_dim_v = supported(head_dim_v);
  Problem softcap = base;
  softcap.softcap = 30;
  features.softcap = supported(softcap);
  Problem alibi = base;
  alibi.alibi_slopes.assign(static_cast<size_t>(base.heads_q), 0.5f);
  features.alibi = supported(alibi);
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
