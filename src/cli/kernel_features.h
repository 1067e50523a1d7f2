// The features of a kernel, found by calling its supports() for one feature at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/kernel.h"

namespace longspan::cli {

// The block sizes that are probed.
inline constexpr int64_t kProbedBlocks[] = {64, 128, 256};

// Features of one direction. Each is probed with the other features as plain as the kernel allows.
struct DirectionFeatures {
  std::string reason;  // why nothing is supported; empty if something is
  std::vector<DType> dtypes;
  std::vector<int64_t> head_dims;       // of the multiples of 8 up to 256
  std::vector<std::string_view> masks;  // patterns
  std::vector<int64_t> block_sizes;     // of patterns with a block_size, among kProbedBlocks
  bool grouped = false;                 // heads_q > heads_kv
  bool rectangular = false;             // tokens_q != tokens_kv, as a shard of a mask has
  bool fp32_output = false;
  bool deterministic = false;
  bool lse_gradient = false;
  bool head_dim_v = false;  // of its own: half of head_dim is probed
  bool softcap = false;
  bool alibi = false;
  friend bool operator==(const DirectionFeatures&, const DirectionFeatures&) = default;
};

struct KernelFeatures {
  std::string reason;  // why it cannot run on this machine; empty if it can
  DirectionFeatures forward, backward;
};

// Probes on the first device of the kernel's kind. If there is none, it probes on a nominal Hopper GPU with
// the values of the data sheet, to show what the kernel could do there.
KernelFeatures probe(const Kernel& kernel, std::span<const Device> devices);

}  // namespace longspan::cli
