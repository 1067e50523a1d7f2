// Tiles of 16-bit elements in shared memory, and the tensor cores' operands read from them. Rows have kColumns
// elements in chunks of 16 bytes, which are permuted so that the eight rows of a matrix lie in different
// banks.
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

  static LONGSPAN_DEVICE uint32_t offset(int row, int chunk) {
    const int place = kChunks % 8 == 0 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3);
    return static_cast<uint32_t>((row * kChunks + place) * 16);
  }

  // Operand a (16 rows from `row` x 16 columns from chunk `chunk`) of rows as they lie. The four 8 x 8
  // matrices are those of registers a0 to a3: rows 0-7, rows 8-15, then the same of the next 8 columns.
  static LONGSPAN_DEVICE void load_a(uint32_t (&a)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4(a, tile + offset(row + lane % 16, chunk + lane / 16));
  }
  // Operand a of the transposed tile: 16 columns from chunk `chunk` x 16 rows from `row`.
  static LONGSPAN_DEVICE void load_a_trans(uint32_t (&a)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4_trans(a, tile + offset(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2));
  }
  // Operands b of two products whose columns n are the tile's rows, 8 and 8 from `row`; k are its columns.
  static LONGSPAN_DEVICE void load_b(uint32_t (&b)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4(b, tile + offset(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2));
  }
  // Operands b of two products whose k are the tile's rows, 16 from `row`; n are its columns, 8 and 8.
  static LONGSPAN_DEVICE void load_b_trans(uint32_t (&b)[4], uint32_t tile, int row, int chunk, int lane) {
    Isa::ldmatrix_x4_trans(b, tile + offset(row + lane % 16, chunk + lane / 16));
  }

  // Two neighbouring elements of an accumulator, at an even column.
  static LONGSPAN_DEVICE void store_pair(uint32_t tile, int row, int column, uint32_t pair) {
    Isa::st_shared(tile + offset(row, column / 8) + static_cast<uint32_t>(column % 8 * 2), pair);
  }
  static LONGSPAN_DEVICE Vector load_chunk(uint32_t tile, int row, int chunk) {
    return Isa::ld_shared_vector(tile + offset(row, chunk));
  }

  // Begins the copy of rows of one head, by all kThreads threads. Rows past `rows` and chunks past `chunks`
  // become zeros.
  template <int kThreads>
  static LONGSPAN_DEVICE void copy_keys(uint32_t tile, const TensorRows& from, int first, int head, int rows,
                                        int chunks, int thread) {
    const uint16_t* base = from.row<const uint16_t>(first, head);
    LONGSPAN_UNROLL
    for (int i = thread; i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool there = row < rows && chunk < chunks;
      Isa::cp_async(tile + offset(row, chunk), base + (there ? row * from.token_stride + chunk * 8 : 0), there);
    }
  }
  // The same for rows of several heads: row r is token r >> log2_pack, head r & (pack - 1).
  template <int kThreads>
  static LONGSPAN_DEVICE void copy_queries(uint32_t tile, const TensorRows& from, int first, int head, int rows,
                                           int chunks, int log2_pack, int thread) {
    const uint16_t* base = from.row<const uint16_t>(first, head);
    LONGSPAN_UNROLL
    for (int i = thread; i < kRows * kChunks; i += kThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool there = row < rows && chunk < chunks;
      const int64_t token = row >> log2_pack, h = row & ((1 << log2_pack) - 1);
      Isa::cp_async(tile + offset(row, chunk),
                    base + (there ? token * from.token_stride + h * from.head_stride + chunk * 8 : 0), there);
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
