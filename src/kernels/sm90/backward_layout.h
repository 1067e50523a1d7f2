// The order in which the backward kernel leaves its sums in fp32: as the threads of its warpgroups hold them,
// four floats a thread at a time, so that 32 threads add 512 bytes that lie one after the other. The pass
// that rounds them finds its way back with these functions. Plain arithmetic for host and device.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// A float of a tile of dq: query row of the tile, and position in head_dim.
struct DqElement {
  int32_t row = 0, d = 0;
};

// Of the four floats at `4 * group`, number `c` (0 to 3). Each of two warpgroups holds dq^T, 64 rows of
// head_dim by all queries; with head_dim 64, by half of the queries.
constexpr DqElement dq_element(int32_t group, int32_t c, int32_t rows, int32_t head_dim) {
  const int32_t columns = head_dim == 128 ? rows : rows / 2;  // of a warpgroup's product
  const int32_t lane = group % 32, i = group / 32 % (columns / 8), warp = group / 32 / (columns / 8);
  const int32_t d = warp % 4 * 16 + lane / 4 + c / 2 * 8, row = 8 * i + 2 * (lane % 4) + c % 2;
  return warp < 4 ? DqElement{row, d}
                  : (head_dim == 128 ? DqElement{row, d + 64} : DqElement{row + columns, d});
}

// A float of a tile of dk or dv: key of the tile, and position in head_dim. Each of two warpgroups holds 64
// keys.
struct DkvElement {
  int32_t key = 0, d = 0;
};
constexpr DkvElement dkv_element(int32_t group, int32_t c, int32_t head_dim) {
  const int32_t lane = group % 32, i = group / 32 % (head_dim / 8), warp = group / 32 / (head_dim / 8);
  return {warp * 16 + lane / 4 + c / 2 * 8, 8 * i + 2 * (lane % 4) + c % 2};
}

}  // namespace longspan::sm90
