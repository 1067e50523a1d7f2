// The layout of row statistics and of fp32 sums in global memory: as the threads of the warpgroups hold them,
// four floats at a time. The pass that rounds the sums inverts it with these functions. Plain arithmetic for
// host and device.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// If threads add dq themselves, the 32 of a warp add 512 contiguous bytes. An element of a tile of dq: its
// query row, and its position in head_dim.
struct DqElement {
  int32_t row = 0, d = 0;
};

// Element `c` (0 to 3) of the four floats at `4 * group`. dq^T consists of products of 64 of head_dim by
// `rows` queries.
constexpr DqElement dq_element(int32_t group, int32_t c, int32_t rows) {
  const int32_t lane = group % 32, i = group / 32 % (rows / 8), warp = group / 32 / (rows / 8);
  return {8 * i + 2 * (lane % 4) + c % 2, warp * 16 + lane / 4 + c / 2 * 8};
}

// If TMA adds dq, it lies in rows, in chunks of four floats. A thread holds columns 8 i + 2 (lane % 4) and
// the next one for all i; a chunk has those of two neighbouring i. In odd rows of a tile, chunks 0 to 3 and 4
// to 7 of each eight are exchanged, so that eight threads that write together use all banks of shared memory.
constexpr int32_t dq_chunk_place(int32_t row_of_tile, int32_t chunk) {
  return chunk ^ (row_of_tile % 2 * 4);
}
// The position in the row of element `c` (0 to 3) of a chunk.
constexpr int32_t dq_chunk_column(int32_t chunk, int32_t c) {
  return chunk / 4 * 16 + chunk % 4 * 2 + c / 2 * 8 + c % 2;
}

// The place of a row's stats in a tile. A thread holds columns 8 i + 2 (lane % 4) and the next one for all i,
// and reads the stats for two neighbouring i at once.
constexpr int32_t stats_index(int32_t row) {
  const int32_t i = row / 8, quad_lane = row % 8 / 2;
  return (i / 2 * 4 + quad_lane) * 4 + i % 2 * 2 + row % 2;
}

}  // namespace longspan::sm90
