// The kernels before and after the backward kernel, one CTA for each tile of rows of a unit. Both are bound
// by memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable/isa/device.h"
#include "kernels/portable/params.h"

namespace longspan::portable {

inline constexpr int kPassThreads = 128;

// Eight elements of a row in fp32.
template <class Isa, class Element>
LONGSPAN_DEVICE void load_eight(const TensorRows& from, int64_t token, int64_t head, int column,
                                float (&x)[8]) {
  if (from.is_f32 != 0) {
    const auto* vectors = reinterpret_cast<const Vector*>(from.row<const float>(token, head) + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Vector four = vectors[half];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[4 * half + i] = Isa::as_float(four.word[i]);
    }
    return;
  }
  const Vector eight = *reinterpret_cast<const Vector*>(from.row<const uint16_t>(token, head) + column);
#pragma unroll
  for (int i = 0; i < 4; ++i) Isa::template unpack<Element>(eight.word[i], x[2 * i], x[2 * i + 1]);
}

template <class Isa, class Element>
LONGSPAN_DEVICE void store_eight(const TensorRows& to, int64_t token, int64_t head, int column,
                                 const float (&x)[8]) {
  if (to.is_f32 != 0) {
    auto* vectors = reinterpret_cast<Vector*>(to.row<float>(token, head) + column);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      vectors[half] = {{Isa::as_bits(x[4 * half]), Isa::as_bits(x[4 * half + 1]),
                        Isa::as_bits(x[4 * half + 2]), Isa::as_bits(x[4 * half + 3])}};
    return;
  }
  Vector eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) eight.word[i] = Isa::template pack<Element>(x[2 * i], x[2 * i + 1]);
  *reinterpret_cast<Vector*>(to.row<uint16_t>(token, head) + column) = eight;
}

// A CTA's tile of rows.
struct PassTile {
  int64_t number = 0;  // of all units
  int32_t first_token = 0, first_head = 0;

  LONGSPAN_DEVICE PassTile(const BackwardParams& p, int block)
      : number(block),
        first_token(block % p.query_tiles * (p.rows >> p.heads.log2_pack)),
        first_head(block / p.query_tiles << p.heads.log2_pack) {}
  LONGSPAN_DEVICE int token(const BackwardParams& p, int row) const {
    return first_token + (row >> p.heads.log2_pack);
  }
  LONGSPAN_DEVICE int head(const BackwardParams& p, int row) const {
    return first_head + (row & (p.heads.pack() - 1));
  }
};

// A CTA's part of the zeros for the slots of its KV head.
LONGSPAN_DEVICE void clear_slots(const BackwardParams& p, const PassTile& tile, int thread) {
  const int ctas = p.heads.units_per_kv * p.query_tiles;  // of the head
  const int head = static_cast<int>(tile.number / ctas), cta = static_cast<int>(tile.number % ctas);
  const int slots = p.map.slots[p.heads.per_head_masks != 0 ? head : 0];
  const int vectors = p.keys * p.padded_head_dim / 2;  // of a slot
  auto* sums = reinterpret_cast<Vector*>(p.dkv_sums + int64_t{head} * p.slots * 4 * vectors);
  for (int64_t i = int64_t{cta} * kPassThreads + thread; i < int64_t{slots} * vectors;
       i += int64_t{ctas} * kPassThreads)
    sums[i] = Vector{};
  if (cta == 0)
    for (int i = thread; i < slots; i += kPassThreads) p.arrived[head * p.slots + i] = 0;
}

// delta = sum of o * dout - dlse; lse to the base 2, +inf for rows that see no key or do not exist; zeros for
// dq, and for dk and dv of tiles of keys in pieces.
template <class Isa, class Element>
LONGSPAN_DEVICE void prepare_rows(const BackwardParams& p) {
  constexpr int kLanes = 8;  // that share a row
  constexpr float kLog2E = 1.44269504088896341f;
  const PassTile tile(p, Isa::block());
  const int lane = Isa::thread() % kLanes;
  float* stats = p.stats + tile.number * 2 * p.rows;
  for (int row = Isa::thread() / kLanes; row < p.rows; row += kPassThreads / kLanes) {
    const int token = tile.token(p, row), head = tile.head(p, row);
    float sum = 0, lse = INFINITY;
    if (token < p.heads.tokens_q) {
      const int64_t at = int64_t{head} * p.heads.tokens_q + token;
      if (p.lse[at] != -INFINITY) {
        lse = p.lse[at] * kLog2E;
        if (p.dlse != nullptr && lane == 0) sum = -p.dlse[at];
        for (int column = 8 * lane; column < p.heads.head_dim_v; column += 8 * kLanes) {
          float a[8], b[8];
          load_eight<Isa, Element>(p.o, token, head, column, a);
          load_eight<Isa, Element>(p.dout, token, head, column, b);
#pragma unroll
          for (int i = 0; i < 8; ++i) sum = Isa::fma(a[i], b[i], sum);
        }
      }
    }
#pragma unroll
    for (int lanes = 1; lanes < kLanes; lanes *= 2) sum += Isa::shfl_xor(sum, lanes);
    if (lane == 0) {
      stats[row] = lse;
      stats[p.rows + row] = sum;
    }
  }
  auto* sums = reinterpret_cast<Vector*>(p.dq_sums + tile.number * p.rows * p.padded_head_dim);
  for (int i = Isa::thread(); i < p.rows * p.padded_head_dim / 4; i += kPassThreads) sums[i] = Vector{};
  clear_slots(p, tile, Isa::thread());
  if (p.turns == nullptr || Isa::thread() != 0) return;
  p.turns[tile.number] = 0;
  if (tile.number == 0) *p.next_item = 0;
}

// Sums as the backward kernel's accumulators hold them -> dq.
template <class Isa, class Element>
LONGSPAN_DEVICE void finish_rows(const BackwardParams& p) {
  const PassTile tile(p, Isa::block());
  const float* sums = p.dq_sums + tile.number * p.rows * p.padded_head_dim;
  const int dim_tiles = p.padded_head_dim / 8;
  for (int i = Isa::thread(); i < p.rows / 2 * dim_tiles; i += kPassThreads) {
    const int pair = i / dim_tiles, n = i % dim_tiles;  // rows r and r + 8 of a fragment
    const int first = pair / 8 * 16 + pair % 8;
    if (8 * n >= p.heads.head_dim) continue;
    float sum[4][4];  // of four neighbouring lanes
    Isa::sums_of(sums + (first / 16 * dim_tiles + n) * 128, first % 8 * 4, sum);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first + 8 * r, token = tile.token(p, row);
      if (token >= p.heads.tokens_q) continue;
      float x[8];
#pragma unroll
      for (int column = 0; column < 8; ++column) x[column] = sum[column / 2][2 * r + column % 2] * p.scale;
      store_eight<Isa, Element>(p.dq, token, tile.head(p, row), 8 * n, x);
    }
  }
}

}  // namespace longspan::portable
