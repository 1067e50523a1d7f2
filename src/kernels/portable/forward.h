// The portable forward kernel, for every mask: FlashAttention-2's algorithm over a tile map.
//
//   Q tile      kRows rows (tokens x query heads of a group), in shared memory for the item's life
//   K, V tiles  kKeys keys, one buffer each, filled by cp.async while the other one is used
//   warps       each has kRows / kWarps rows of S, P and O in registers
//
//   barrier | V(j) begins | S = Q K(j) | barrier | K(j+1) begins | softmax | O += P V(j) | barrier ...
//
// One CTA is one item: a row tile of a unit of query heads. The grid is sorted, heaviest first. Partial tiles
// test the elements, full ones only where the last tile of keys is cut.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable/score_change.h"
#include "kernels/portable/shape.h"
#include "kernels/portable/tile.h"
#include "kernels/portable/visible.h"

namespace longspan::portable {

template <class Element_, ForwardShape kShape, bool kChangesScores_ = false>
struct ForwardConfig {
  using Element = Element_;
  static constexpr bool kChangesScores = kChangesScores_;
  static constexpr int kHeadDim = kShape.head_dim, kRows = kShape.rows, kKeys = kShape.keys,
                       kWarps = kShape.warps, kStages = kShape.stages;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRowTiles = kRows / kWarps / 16;  // products of 16 rows in a warp
  static constexpr int kSteps = kHeadDim / 16, kKeyTiles = kKeys / 8, kDimTiles = kHeadDim / 8;
  static_assert(kRows == kRowTiles * 16 * kWarps && kKeys % 16 == 0 && kKeys <= 128 && kHeadDim % 32 == 0);
};

template <class Isa, class C>
struct Forward {
  using Element = typename C::Element;
  using QTile = Tile<Isa, C::kRows, C::kHeadDim>;
  using KeyTile = Tile<Isa, C::kKeys, C::kHeadDim>;
  using Scores = float[C::kRowTiles][C::kKeyTiles][4];
  static constexpr int kMaxima = 2 * C::kRowTiles;  // rows of a thread

  const ForwardParams& p;
  const int thread = Isa::thread(), warp_lane = thread % 32, quad = warp_lane % 4;
  const int first_row = thread / 32 * 16 * C::kRowTiles;  // of the warp
  const uint32_t q = Isa::shared_memory(), k = q + QTile::kBytes, v = k + C::kStages * KeyTile::kBytes;
  int first_token, tokens, head, kv_head;  // of the item; head: the unit's first
  float o[C::kRowTiles][C::kDimTiles][4] = {};
  float reference[kMaxima], sum[kMaxima];  // reference: of the row's exponents, to the base 2

  LONGSPAN_DEVICE explicit Forward(const ForwardParams& params) : p(params) {}

  LONGSPAN_DEVICE int row_of(int i) const { return first_row + i / 2 * 16 + i % 2 * 8 + warp_lane / 4; }

  LONGSPAN_DEVICE void copy_k(uint32_t to, int tile) const { copy(to, p.k, p.heads.head_dim, tile); }
  LONGSPAN_DEVICE void copy_v(uint32_t to, int tile) const { copy(to, p.v, p.heads.head_dim_v, tile); }
  LONGSPAN_DEVICE void copy(uint32_t to, const TensorRows& from, int head_dim, int tile) const {
    const int first = tile * C::kKeys;
    KeyTile::template copy<C::kThreads>(to, from, first, kv_head, p.heads.tokens_kv - first, head_dim / 8, 0,
                                        Isa::opaque(thread));
  }

  // s = Q K^T. Operands of the next products are loaded ahead of the present ones.
  LONGSPAN_DEVICE void scores(Scores& s, uint32_t k) const {
    constexpr int kPairs = C::kKeyTiles / 2, kProducts = C::kSteps * kPairs;
    const int lane = Isa::opaque(warp_lane);
    uint32_t a[2][C::kRowTiles][4], b[2][4];
    const auto load_q = [&](int step) {
#pragma unroll
      for (int m = 0; m < C::kRowTiles; ++m)
        QTile::load_a(a[step % 2][m], q, first_row + 16 * m, 2 * step, lane);
    };
    load_q(0);
    KeyTile::load_b(b[0], k, 0, 0, lane);
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step)
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        const int i = step * kPairs + n, next = i + 1;
        if (next < kProducts) KeyTile::load_b(b[next % 2], k, next % kPairs * 16, next / kPairs * 2, lane);
        if (n == 0 && step + 1 < C::kSteps) load_q(step + 1);
#pragma unroll
        for (int m = 0; m < C::kRowTiles; ++m) {
          Isa::template mma<Element>(s[m][2 * n], a[step % 2][m], b[i % 2][0], b[i % 2][1]);
          Isa::template mma<Element>(s[m][2 * n + 1], a[step % 2][m], b[i % 2][2], b[i % 2][3]);
        }
      }
  }

  // Products to scores to the base 2. `first_key`: of the tile.
  LONGSPAN_DEVICE void change(Scores& s, int first_key) const {
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) {
      const int row = row_of(i);
      const int ahead = first_token + (row >> p.heads.log2_pack) + p.change.shift - first_key - 2 * quad;
      const float slope = slope_of(p.change, head + (row & (p.heads.pack() - 1)));
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n)
#pragma unroll
        for (int parity = 0; parity < 2; ++parity) {
          float& x = s[i / 2][n][i % 2 * 2 + parity];
          x = capped<Isa>(p.change, x).score - penalty(slope, ahead - 8 * n - parity);
        }
    }
  }

  // Hides what the tile or, if that is full, the end of the keys hides.
  LONGSPAN_DEVICE void hide(Scores& s, const Walk<1>& at, int keys) const {
    uint32_t spans[kMaxima];
    const auto row = [&](int i) { return row_of(i) >> p.heads.log2_pack; };
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) spans[i] = at.full() ? 0 : p.map.span(at.layer(), row(i));
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) {
      VisibleColumns visible;
      if (at.full())
        visible.add(0, keys, quad);
      else
        visible = visible_columns(p.map, at, spans[i], row(i), 0, quad);
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n)
#pragma unroll
        for (int parity = 0; parity < 2; ++parity)
          if (!visible.has(n, parity)) s[i / 2][n][i % 2 * 2 + parity] = -INFINITY;
    }
  }

  // Scores to weights 2^(score - reference). A row's reference follows its maximum only where that has grown
  // by more than kSlack: weights up to 2^kSlack lose no precision, and the sums are seldom rescaled. A
  // reference that stays is the same number, so that nothing drifts (docs/concepts/proof.md, "Drift of lse").
  LONGSPAN_DEVICE void softmax(Scores& s) {
    constexpr float kSlack = 8;
    float most[kMaxima];
    bool grows = false;
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) {
      most[i] = -INFINITY;
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n)
        most[i] = fmaxf(most[i], fmaxf(s[i / 2][n][i % 2 * 2], s[i / 2][n][i % 2 * 2 + 1]));
      most[i] = fmaxf(most[i], Isa::shfl_xor(most[i], 1));
      most[i] = fmaxf(most[i], Isa::shfl_xor(most[i], 2)) * p.scale_log2;
      grows = grows || most[i] > reference[i] + kSlack;
    }
    if (Isa::any(grows)) rescale(most, kSlack);
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) {
      // No key so far: any finite reference gives weights of 0.
      const float minus = reference[i] == -INFINITY ? 0 : -reference[i];
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n)
#pragma unroll
        for (int c = i % 2 * 2; c < i % 2 * 2 + 2; ++c) {
          s[i / 2][n][c] = Isa::exp2(Isa::fma(s[i / 2][n][c], p.scale_log2, minus));
          sum[i] += s[i / 2][n][c];
        }
    }
  }

  LONGSPAN_DEVICE void rescale(const float (&most)[kMaxima], float slack) {
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) {
      float shrink = 1;
      if (most[i] > reference[i] + slack) {
        shrink = Isa::exp2(reference[i] - most[i]);
        reference[i] = most[i];
      }
      sum[i] *= shrink;
#pragma unroll
      for (int n = 0; n < C::kDimTiles; ++n)
#pragma unroll
        for (int c = i % 2 * 2; c < i % 2 * 2 + 2; ++c) o[i / 2][n][c] *= shrink;
    }
  }

  // o += P V, with the operands of the next products loaded ahead.
  LONGSPAN_DEVICE void add_values(const Scores& s, uint32_t v) {
    constexpr int kPairs = C::kDimTiles / 2, kProducts = C::kKeys / 16 * kPairs;
    const int lane = Isa::opaque(warp_lane);
    uint32_t a[C::kRowTiles][4], b[2][4];
    KeyTile::load_b_trans(b[0], v, 0, 0, lane);
#pragma unroll
    for (int step = 0; step < C::kKeys / 16; ++step)
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        const int i = step * kPairs + n, next = i + 1;
        if (next < kProducts)
          KeyTile::load_b_trans(b[next % 2], v, next / kPairs * 16, next % kPairs * 2, lane);
#pragma unroll
        for (int m = 0; m < C::kRowTiles; ++m) {
          if (n == 0) accumulators_as_a<Isa, Element>(a[m], s[m][2 * step], s[m][2 * step + 1]);
          Isa::template mma<Element>(o[m][2 * n], a[m], b[i % 2][0], b[i % 2][1]);
          Isa::template mma<Element>(o[m][2 * n + 1], a[m], b[i % 2][2], b[i % 2][3]);
        }
      }
  }

  // lse, and what the rows of o are multiplied by. With a part to merge, o is added to it.
  LONGSPAN_DEVICE void finish_row(int i) {
    float total = sum[i];
    total += Isa::shfl_xor(total, 1);
    total += Isa::shfl_xor(total, 2);
    constexpr float kLn2 = 0.693147180559945309f, kLog2E = 1.44269504088896341f;
    const int row = row_of(i), token = first_token + (row >> p.heads.log2_pack);
    const int query_head = head + (row & (p.heads.pack() - 1));
    const bool there = row >> p.heads.log2_pack < tokens;
    float lse2 = -INFINITY, factor = 0, part_factor = 0;  // lse2: to the base 2
    if (total > 0 || total != total) {
      lse2 = reference[i] + Isa::log2(total);
      factor = 1 / total;
    }
    const int64_t at = int64_t{query_head} * p.heads.tokens_q + token;
    float part_lse = -INFINITY;
    if (p.part_lse != nullptr) {
      if (there) part_lse = p.part_lse[at];
      Isa::sync_warp();  // part_lse may be lse: the four lanes of a row read it before one of them writes
    }
    if (p.sinks != nullptr) part_lse = p.sinks[query_head];  // a part whose o is 0
    float lse = lse2 == -INFINITY ? -INFINITY : lse2 * kLn2;
    const float* part = nullptr;
    if (part_lse != -INFINITY) {
      const float part2 = part_lse * kLog2E;
      const float most = fmaxf(part2, lse2);
      const float both = Isa::exp2(part2 - most) + Isa::exp2(lse2 - most);
      const float both2 = most + Isa::log2(both);
      factor *= Isa::exp2(lse2 - both2);
      part_factor = Isa::exp2(part2 - both2);
      lse = both2 * kLn2;
      if (p.part_lse != nullptr) part = p.part_o.row<const float>(token, query_head);
    }
    if (there && quad == 0) p.lse[at] = lse;
#pragma unroll
    for (int n = 0; n < C::kDimTiles; ++n)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& x = o[i / 2][n][i % 2 * 2 + c];
        x *= factor;
        const int column = 8 * n + 2 * quad + c;
        if (part != nullptr && column < p.heads.head_dim_v) x = Isa::fma(part[column], part_factor, x);
      }
    if (p.o.is_f32 != 0) {
      if (!there) return;
      float* to = p.o.row<float>(token, query_head);
#pragma unroll
      for (int n = 0; n < C::kDimTiles; ++n) {
        if (8 * n >= p.heads.head_dim_v) continue;
        to[8 * n + 2 * quad] = o[i / 2][n][i % 2 * 2];
        to[8 * n + 2 * quad + 1] = o[i / 2][n][i % 2 * 2 + 1];
      }
      return;
    }
#pragma unroll
    for (int n = 0; n < C::kDimTiles; ++n)
      QTile::store_pair(q, row, 8 * n + 2 * quad,
                        Isa::template pack<Element>(o[i / 2][n][i % 2 * 2], o[i / 2][n][i % 2 * 2 + 1]));
  }

  // The warp's rows of o from its part of the Q tile, which only it reads.
  LONGSPAN_DEVICE void store_rows() const {
    constexpr int kRowsOfWarp = 16 * C::kRowTiles;
    for (int i = warp_lane; i < kRowsOfWarp * QTile::kChunks; i += 32) {
      const int row = first_row + i / QTile::kChunks, chunk = i % QTile::kChunks;
      const int token = row >> p.heads.log2_pack;
      if (token >= tokens || 8 * chunk >= p.heads.head_dim_v) continue;
      auto* to = p.o.row<uint16_t>(first_token + token, head + (row & (p.heads.pack() - 1)));
      *reinterpret_cast<Vector*>(to + 8 * chunk) = QTile::load_chunk(q, row, chunk);
    }
  }

  LONGSPAN_DEVICE MapRow set_item(int number) {
    const ItemOrder::Item item = p.order.item(number);
    kv_head = item.head / p.heads.units_per_kv;
    head = item.head << p.heads.log2_pack;
    const MapRow row = p.map.rows[(p.heads.per_head_masks != 0 ? kv_head * p.map.items : 0) + item.row];
    first_token = row.tile * p.map.rows_per_tile;
    tokens = p.heads.tokens_q - first_token;
    if (tokens > p.map.rows_per_tile) tokens = p.map.rows_per_tile;
    return row;
  }

  LONGSPAN_DEVICE void run() {
    const MapRow row = set_item(Isa::block());
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) reference[i] = -INFINITY, sum[i] = 0;

    Walk<1> at(p.map, row);
    if (!at.done()) {
      QTile::template copy<C::kThreads>(q, p.q, first_token, head, tokens << p.heads.log2_pack,
                                        p.heads.head_dim / 8, p.heads.log2_pack, thread);
      copy_k(k, at.tile());
      if (C::kStages == 2) copy_v(v, at.tile());
      Isa::cp_async_commit();
    }
    uint32_t stage = 0;  // in bytes
#pragma unroll 1
    while (!at.done()) {
      Isa::template cp_async_wait<0>();
      Isa::sync();  // K is there and V is free; with two stages, both are there and the other stage is free
      if (C::kStages == 1) {
        copy_v(v, at.tile());
        Isa::cp_async_commit();
      }
      Scores s = {};
      scores(s, k + stage);
      if constexpr (C::kChangesScores) change(s, at.tile() * C::kKeys);
      const int keys = p.heads.tokens_kv - at.tile() * C::kKeys;
      if (!at.full() || keys < C::kKeys) hide(s, at, keys);
      if (C::kStages == 1) {
        Isa::template cp_async_wait<0>();
        Isa::sync();  // V is there, and K is free
      }
      at.next(p.map);
      if (!at.done()) {
        const uint32_t other = C::kStages == 2 ? KeyTile::kBytes - stage : 0;
        copy_k(k + other, at.tile());
        if (C::kStages == 2) copy_v(v + other, at.tile());
        Isa::cp_async_commit();
      }
      softmax(s);
      add_values(s, v + stage);
      if (C::kStages == 2) stage = KeyTile::kBytes - stage;
    }
    set_item(Isa::opaque(Isa::block()));  // again, so that the loop need not keep it in registers
    Isa::sync_warp();                     // the warp's products have read Q, whose place o takes
#pragma unroll
    for (int i = 0; i < kMaxima; ++i) finish_row(i);
    if (p.o.is_f32 != 0) return;
    Isa::sync_warp();
    store_rows();
  }
};

}  // namespace longspan::portable
