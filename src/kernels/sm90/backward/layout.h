// The order in which the backward kernel finds its rows' stats, and in which it leaves its sums in fp32: as
// the threads of its warpgroups hold them, four floats at a time. The pass that rounds them finds its way
// back with these functions. Plain arithmetic for host and device.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

// Where threads add dq themselves, 32 of them add 512 bytes that lie one after the other.
// A float of a tile of dq: query row of the tile, and position in head_dim.
struct DqElement {
  int32_t row = 0, d = 0;
};

// Of the four floats at `4 * group`, number `c` (0 to 3). dq^T consists of products of 64 of head_dim by
// `rows` queries.
constexpr DqElement dq_element(int32_t group, int32_t c, int32_t rows) {
  const int32_t lane = group % 32, i = group / 32 % (rows / 8), warp = group / 32 / (rows / 8);
  return {8 * i + 2 * (lane % 4) + c % 2, warp * 16 + lane / 4 + c / 2 * 8};
}

// Where dq goes by the copy engine, it lies in rows, of which each warpgroup has a half: `width` floats, in
// chunks of four. A thread holds columns 8 i + 2 (lane % 4) and the next of all i; a chunk has those of two
// neighbouring i. Odd rows of a tile have chunks 0 to 3 and 4 to 7 of each eight exchanged: eight threads
// that write at once then use all banks of shared memory.
constexpr int32_t dq_chunk_place(int32_t row_of_tile, int32_t chunk) {
  return chunk ^ (row_of_tile % 2 * 4);
}
// Position in the half row of number `c` (0 to 3) of a chunk.
constexpr int32_t dq_chunk_column(int32_t chunk, int32_t c) {
  return chunk / 4 * 16 + chunk % 4 * 2 + c / 2 * 8 + c % 2;
}

// Where the stats of a tile's row lie: a thread holds columns 8 i + 2 (lane % 4) and the next of all i, and
// reads those of two neighbouring i at once.
constexpr int32_t stats_index(int32_t row) {
  const int32_t i = row / 8, quad_lane = row % 8 / 2;
  return (i / 2 * 4 + quad_lane) * 4 + i % 2 * 2 + row % 2;
}

}  // namespace longspan::sm90
