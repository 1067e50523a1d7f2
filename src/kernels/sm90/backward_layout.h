// The order in which the backward kernel finds its rows' stats, and in which it leaves its sums in fp32: as
// the threads of its warpgroups hold them, four floats a thread at a time, so that 32 threads add 512 bytes
// that lie one after the other. The pass that rounds them finds its way back with these functions. Plain
// arithmetic for host and device.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// A float of a tile of dq: query row of the tile, and position in head_dim.
struct DqElement {
  int32_t row = 0, d = 0;
};

// Of the four floats at `4 * group`, number `c` (0 to 3). dq^T consists of products of 64 of head_dim by
// `columns` queries.
constexpr DqElement dq_element(int32_t group, int32_t c, int32_t columns, int32_t head_dim) {
  const int32_t lane = group % 32, i = group / 32 % (columns / 8), warp = group / 32 / (columns / 8);
  const int32_t d = warp % 4 * 16 + lane / 4 + c / 2 * 8, row = 8 * i + 2 * (lane % 4) + c % 2;
  if (warp < 4) return {row, d};
  return head_dim == 128 ? DqElement{row, d + 64} : DqElement{row + columns, d};
}

// The same of dq as it stands, in products of 64 queries by 64 of head_dim.
constexpr DqElement plain_dq_element(int32_t group, int32_t c) {
  const int32_t lane = group % 32, i = group / 32 % 8, warp = group / 256;
  return {warp % 4 * 16 + lane / 4 + c / 2 * 8, warp / 4 * 64 + 8 * i + 2 * (lane % 4) + c % 2};
}

// Where the stats of a tile's row lie: a thread holds columns 8 i + 2 (lane % 4) and the next of all i, and
// reads those of two neighbouring i at once.
constexpr int32_t stats_index(int32_t row) {
  const int32_t i = row / 8, quad_lane = row % 8 / 2;
  return (i / 2 * 4 + quad_lane) * 4 + i % 2 * 2 + row % 2;
}

// A float of a tile of dk or dv: key of the tile, and position in head_dim. Each warpgroup holds 64
// keys.
struct DkvElement {
  int32_t key = 0, d = 0;
};
constexpr DkvElement dkv_element(int32_t group, int32_t c, int32_t head_dim) {
  const int32_t lane = group % 32, i = group / 32 % (head_dim / 8), warp = group / 32 / (head_dim / 8);
  return {warp * 16 + lane / 4 + c / 2 * 8, 8 * i + 2 * (lane % 4) + c % 2};
}

}  // namespace longspan::sm90
