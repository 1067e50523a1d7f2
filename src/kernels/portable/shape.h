// The shapes of the portable kernels' tiles: plain data that names an instance, and the choice for a problem.
#pragma once

#include <cstdint>

namespace longspan {
struct Device;
struct Problem;
}  // namespace longspan

namespace longspan::portable {

struct ForwardShape {
  int head_dim = 0;  // of shared memory; a tensor's is padded with zeros
  int rows = 0, keys = 0;
  int warps = 0;

  constexpr uint32_t shared_bytes() const { return static_cast<uint32_t>((rows + 2 * keys) * head_dim * 2); }
  friend constexpr bool operator==(const ForwardShape&, const ForwardShape&) = default;
};

struct BackwardShape {
  int head_dim = 0;
  int rows = 0, keys = 0;
  int warps = 0;
  int halves = 1;   // warps that share 16 keys; each has a part of head_dim
  int stages = 1;   // buffers of Q and dO
  int dq_rows = 1;  // groups of warps by rows of dQ; the others are by head_dim

  // K, V; Q, dO and their statistics; dS and, if its warps are not those that need it, P.
  constexpr uint32_t shared_bytes() const {
    return static_cast<uint32_t>(2 * keys * head_dim * 2 + stages * (2 * rows * head_dim * 2 + 2 * rows * 4) +
                                 (halves > 1 ? 2 : 1) * keys * rows * 2);
  }
  friend constexpr bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

// Query heads of a GQA group that share a row tile: a power of two.
int choose_pack(const Problem& problem);

// The first instance in the order of tuning/generic.h that takes the head_dim and fits the device. head_dim
// must be a multiple of 8 up to 256.
ForwardShape choose_forward_shape(const Problem& problem, const Device& device);
BackwardShape choose_backward_shape(const Problem& problem, const Device& device);

// Heads (of `bytes` each) that are worked on together, so that their data stay in L2.
int32_t choose_section(int64_t heads, int64_t bytes, const Device& device);

// Bytes of shared memory that a CTA may have, by compute capability.
uint32_t most_shared_bytes(int capability);

}  // namespace longspan::portable
