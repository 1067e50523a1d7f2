// The shapes of the portable kernels' tiles: plain data that names an instance.
#pragma once

#include <cstdint>

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

}  // namespace longspan::portable
