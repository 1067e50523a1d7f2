// Tiles of 16-bit elements in shared memory, and the tensor cores' operands read from them. Rows have
// kColumns elements in chunks of 16 bytes, which are permuted so that the eight rows of a matrix lie in
// different banks.
#pragma once

#include <cstdint>

#include "kernels/portable/isa/device.h"
#include "kernels/portable/params.h"

namespace longspan::portable {

template <class Isa, int kRows_, int kColumns_>
struct Tile {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kChunks = kColumns / 8;  // of a row
  static constexpr uint32_t kBytes = kRows * kColumns * 2;
  static_assert(kChunks % 4 == 0, "rows are a multiple of 64 bytes");

  // Of the lower bits of a chunk's number, those that the permutation changes.
  static constexpr int kMask = kChunks % 8 == 0 ? 7 : 3;
  static LONGSPAN_DEVICE uint32_t offset(int row, int chunk) {
    return static_cast<uint32_t>((row * kChunks + (chunk ^ ((kMask == 7 ? row : row >> 1) & kMask))) * 16);
  }
  // The address of chunk `chunk` + c, where `at` is that of chunk c of the same row and their numbers have no
  // bit in common: a constant `chunk` costs one instruction and no register. Tiles are 128-byte aligned.
  static LONGSPAN_DEVICE uint32_t move(uint32_t at, int chunk) {
    return (at ^ static_cast<uint32_t>((chunk & kMask) * 16)) + static_cast<uint32_t>((chunk & ~kMask) * 16);
  }
  static LONGSPAN_DEVICE uint32_t rows(int row) { return static_cast<uint32_t>(row * kChunks * 16); }

  // In what follows `row` is a multiple of 8 and `chunk` even; c is 0 or 1.

  // Operand a (16 rows from `row` x 16 columns from chunk `chunk`) of rows as they lie. The four 8 x 8
  // matrices are those of registers a0 to a3: rows 0-7, rows 8-15, then the same of the next 8 columns.
  static LONGSPAN_DEVICE void load_a(uint32_t (&a)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4(a, move(tile + offset(lane % 16, lane / 16), chunk) + rows(row));
  }
  // Operand a of the transposed tile: 16 columns from chunk `chunk` x 16 rows from `row`.
  static LONGSPAN_DEVICE void load_a_trans(uint32_t (&a)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4_trans(a, move(tile + offset(lane % 8 + lane / 16 * 8, lane / 8 % 2), chunk) + rows(row));
  }
  // Operands b of two products whose columns n are the tile's rows, 8 and 8 from `row`; k are its columns.
  static LONGSPAN_DEVICE void load_b(uint32_t (&b)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4(b, move(tile + offset(lane % 8 + lane / 16 * 8, lane / 8 % 2), chunk) + rows(row));
  }
  // Operands b of two products whose k are the tile's rows, 16 from `row`; n are its columns, 8 and 8.
  static LONGSPAN_DEVICE void load_b_trans(uint32_t (&b)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4_trans(b, move(tile + offset(lane % 16, lane / 16), chunk) + rows(row));
  }

  // Two neighbouring elements of an accumulator, at an even column.
  static LONGSPAN_DEVICE uint32_t pair_address(uint32_t tile, int row, int column) {
    return tile + offset(row, column / 8) + static_cast<uint32_t>(column % 8 * 2);
  }
  static LONGSPAN_DEVICE void store_pair(uint32_t tile, int row, int column, uint32_t pair) {
    Isa::st_shared(pair_address(tile, row, column), pair);
  }
  static LONGSPAN_DEVICE Vector load_chunk(uint32_t tile, int row, int chunk) {
    return Isa::ld_shared_vector(tile + offset(row, chunk));
  }

  // Begins the copy of a tile's rows, by all kThreads threads: row r is token r >> log2_pack and head
  // r & (2^log2_pack - 1) from the first ones on. Rows past `count` and chunks past `chunks` become zeros.
  template <int kThreads>
  static LONGSPAN_DEVICE void copy(uint32_t tile, const TensorRows& from, int first, int head, int count,
                                   int chunks, int log2_pack, int thread) {
    // A thread's rows are kStep apart, a multiple of each pack and of 8, so its addresses are, too.
    constexpr int kLanes = kChunks % 32 == 0 && kThreads >= 256 ? 32
                           : kChunks % 16 == 0                  ? 16
                                                                : kChunks & -kChunks;
    constexpr int kStep = kThreads / kLanes;
    static_assert(kStep % 8 == 0 && kRows % kStep == 0);
    const int row = thread / kLanes, lane = thread % kLanes;
    const uint16_t* at =
        from.row<const uint16_t>(first + (row >> log2_pack), head + (row & ((1 << log2_pack) - 1)));
    at += 8 * lane;
    const int64_t step = (kStep >> log2_pack) * from.token_stride;
    const uint32_t to = tile + offset(row, lane);
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += kLanes)
        Isa::cp_async(to + rows(i) + static_cast<uint32_t>(16 * chunk), at + 8 * chunk,
                      row + i < count && lane + chunk < chunks);
      at += step;
    }
  }
};

// Two products of accumulators that lie side by side as the operand a of a product with k = their columns.
template <class Isa, class Element>
LONGSPAN_DEVICE void accumulators_as_a(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = Isa::template pack<Element>(left[0], left[1]);
  a[1] = Isa::template pack<Element>(left[2], left[3]);
  a[2] = Isa::template pack<Element>(right[0], right[1]);
  a[3] = Isa::template pack<Element>(right[2], right[3]);
}

}  // namespace longspan::portable
