// What a kernel can do, found by asking its supports() about one feature after another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/kernel.h"

namespace longspan::cli {

// The sizes of blocks that kernels are asked about.
inline constexpr int64_t kProbedBlocks[] = {64, 128, 256};

// Features of one direction. Each is probed with the others as plain as the kernel takes them.
struct DirectionFeatures {
  std::string reason;  // why not at all; empty if it can
  std::vector<DType> dtypes;
  std::vector<int64_t> head_dims;       // of the multiples of 8 up to 256
  std::vector<std::string_view> masks;  // patterns
  std::vector<int64_t> block_sizes;     // of uniform_block_sparse, among kProbedBlocks
  bool grouped = false;                 // heads_q > heads_kv
  bool rectangular = false;             // tokens_q != tokens_kv, as a shard of a mask has
  bool fp32_output = false;
  bool deterministic = false;
  friend bool operator==(const DirectionFeatures&, const DirectionFeatures&) = default;
};

struct KernelFeatures {
  std::string reason;  // why it cannot run on this machine; empty if it can
  DirectionFeatures forward, backward;
};

// Probed on the first of the devices that is of the kernel's kind; where there is none, on a Hopper GPU as
// data sheets describe it, which says what the kernel could do there.
KernelFeatures probe(const Kernel& kernel, std::span<const Device> devices);

}  // namespace longspan::cli
