// The shapes of the portable kernels' tiles: plain data that names an instance.
#pragma once

#include <cstdint>

namespace longspan::portable {

struct ForwardShape {
  int head_dim = 0;  // of shared memory; a tensor's is padded with zeros
  int rows = 0, keys = 0;
  int warps = 0;
  int stages = 1;  // buffers of K and V

  constexpr uint32_t shared_bytes() const {
    return static_cast<uint32_t>((rows + 2 * stages * keys) * head_dim * 2);
  }
  friend constexpr bool operator==(const ForwardShape&, const ForwardShape&) = default;
};

struct BackwardShape {
  int head_dim = 0;
  int rows = 0, keys = 0;
  int warps = 0;
  int key_groups =
      1;             // groups of warps by keys; the others are by rows of S and dP, and by head_dim of dK, dV
  int dq_rows = 1;   // groups of warps by rows of dQ; the others are by head_dim
  int stages = 1;    // buffers of Q and dO
  int parts = 1;     // of the rows, whose S and dP are computed one after another
  int dq_parts = 1;  // of the rows, whose dQ is computed one after another
  int segments = 1;  // of all rows, at most: all tiles of keys pass one before the next, for L2's sake

  // A warp that has all rows has the operands of dK and dV in registers.
  constexpr bool keeps_scores() const { return key_groups == warps; }
  // K, V; Q, dO, their statistics and the spans of a partial tile; P, unless warps keep it, and dS.
  constexpr uint32_t shared_bytes() const {
    return static_cast<uint32_t>(2 * keys * head_dim * 2 +
                                 stages * (2 * rows * head_dim * 2 + 2 * rows * 4 + keys * 4) +
                                 (keeps_scores() ? 1 : 2) * keys * rows * 2);
  }
  friend constexpr bool operator==(const BackwardShape&, const BackwardShape&) = default;
};

}  // namespace longspan::portable
