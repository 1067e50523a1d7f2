// The portable backward kernel, for every mask. One CTA is one item: a tile of keys of a KV head, whose dK
// and dV stay in registers while the rows that see it pass by.
//
//   K, V        kKeys keys, in shared memory for the item's life
//   Q, dO       kRows rows (tokens x query heads of a group), kStages buffers, with lse and delta of each row
//   warps       16 keys each for S^T = K Q^T and dP^T = V dO^T. P^T and dS^T are operands of dV and dK
//   straight
//               from registers or, where kHalves warps share 16 keys, through shared memory
//   dQ          dS goes through shared memory; each warp has a part of the rows and of head_dim
//
//   barrier A | S^T, dP^T, P, dS | dV += P^T dO, dK += dS^T Q | barrier B | Q, dO of the next rows begin | dQ
//   += dS K
//
// With two stages the next rows begin after barrier A. dQ is added to fp32 sums in global memory: at once, or
// in turns, which makes it deterministic. CTAs that wait for turns take items in the order in which they
// begin, so they only wait for CTAs that began before.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable/shape.h"
#include "kernels/portable/tile.h"
#include "kernels/portable/visible.h"

namespace longspan::portable {

template <class Element_, BackwardShape kShape>
struct BackwardConfig {
  using Element = Element_;
  static constexpr int kHeadDim = kShape.head_dim, kRows = kShape.rows, kKeys = kShape.keys,
                       kWarps = kShape.warps, kHalves = kShape.halves, kStages = kShape.stages;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kQueryTiles = kRows / 8 / kHalves;   // of S^T in a warp
  static constexpr int kDimTiles = kHeadDim / 8 / kHalves;  // of dK and dV in a warp
  static_assert(kKeys * kHalves == 16 * kWarps && kQueryTiles % 2 == 0 && kDimTiles % 2 == 0 && kRows <= 128);

  static constexpr int kDqRowGroups = kShape.dq_rows, kDqDimGroups = kWarps / kDqRowGroups;
  static constexpr int kDqRowTiles = kRows / 16 / kDqRowGroups;  // of a warp
  static constexpr int kDqPairs = kHeadDim / 16 / kDqDimGroups;  // of products, side by side
  static constexpr int kDqPairsAtOnce =
      kDqRowTiles * kDqPairs > 4 && kDqPairs % 2 == 0 ? kDqPairs / 2 : kDqPairs;
  static_assert(kRows == 16 * kDqRowTiles * kDqRowGroups && kHeadDim == 16 * kDqPairs * kDqDimGroups);
};

template <class Isa, class C>
struct Backward {
  using Element = typename C::Element;
  using KeyTile = Tile<Isa, C::kKeys, C::kHeadDim>;
  using RowTile = Tile<Isa, C::kRows, C::kHeadDim>;
  using ScoreTile = Tile<Isa, C::kKeys, C::kRows>;  // of dS and P
  using Scores = float[C::kQueryTiles][4];          // of S^T and dP^T: rows are keys
  using Sums = float[C::kDimTiles][4];

  static constexpr uint32_t kStatsBytes = 2 * C::kRows * sizeof(float);
  static constexpr uint32_t kStageBytes = 2 * RowTile::kBytes + kStatsBytes;

  const BackwardParams& p;
  const int thread = Isa::thread(), warp_lane = thread % 32, quad = warp_lane % 4;
  const int first_row = thread / 32 / C::kHalves * 16;  // of the warp's keys
  const int half = thread / 32 % C::kHalves;
  const uint32_t k = Isa::shared_memory(), v = k + KeyTile::kBytes, stages = v + KeyTile::kBytes,
                 ds = stages + C::kStages * kStageBytes, weights = ds + ScoreTile::kBytes;
  int kv_head = 0, first_key = 0, keys = 0;  // of the item
  Sums dk = {}, dv = {};

  // A visit: a tile of rows of one unit of query heads.
  struct Visit {
    int unit;
    Walk at;
  };

  LONGSPAN_DEVICE explicit Backward(const BackwardParams& params) : p(params) {}

  LONGSPAN_DEVICE uint32_t q_of(int stage) const {
    return stages + static_cast<uint32_t>(stage) * kStageBytes;
  }
  LONGSPAN_DEVICE uint32_t dout_of(int stage) const { return q_of(stage) + RowTile::kBytes; }
  LONGSPAN_DEVICE uint32_t stats_of(int stage) const { return q_of(stage) + 2 * RowTile::kBytes; }
  LONGSPAN_DEVICE int64_t query_tile(const Visit& visit) const {
    return int64_t{kv_head * p.heads.units_per_kv + visit.unit} * p.query_tiles + visit.at.tile();
  }

  LONGSPAN_DEVICE void begin(const Visit& visit, int stage) const {
    const int tile_tokens = C::kRows >> p.heads.log2_pack;
    const int first = visit.at.tile() * tile_tokens;
    int tokens = p.heads.tokens_q - first;
    if (tokens > tile_tokens) tokens = tile_tokens;
    const int head = (kv_head * p.heads.units_per_kv + visit.unit) << p.heads.log2_pack;
    const int rows = tokens << p.heads.log2_pack, chunks = p.heads.head_dim / 8;
    const int thread = Isa::opaque(this->thread);
    RowTile::template copy<C::kThreads>(q_of(stage), p.q, first, head, rows, chunks, p.heads.log2_pack,
                                        thread);
    RowTile::template copy<C::kThreads>(dout_of(stage), p.dout, first, head, rows, chunks, p.heads.log2_pack,
                                        thread);
    if (thread < static_cast<int>(kStatsBytes / 16))
      Isa::cp_async(stats_of(stage) + static_cast<uint32_t>(16 * thread),
                    p.stats + query_tile(visit) * 2 * C::kRows + 4 * thread, true);
    Isa::cp_async_commit();
  }

  // s = keys (K or V) times rows (Q or dO), transposed: 16 keys by the warp's part of the rows.
  LONGSPAN_DEVICE void multiply(Scores& s, uint32_t key_tile, uint32_t row_tile) const {
    const int lane = Isa::opaque(warp_lane);
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      uint32_t a[4];
      KeyTile::load_a(a, key_tile, first_row, 2 * step, lane);
#pragma unroll
      for (int n = 0; n < C::kQueryTiles; n += 2) {
        uint32_t b[4];
        RowTile::load_b(b, row_tile, 8 * (half * C::kQueryTiles + n), 2 * step, lane);
        Isa::template mma<Element>(s[n], a, b[0], b[1]);
        Isa::template mma<Element>(s[n + 1], a, b[2], b[3]);
      }
    }
  }

  LONGSPAN_DEVICE void hide(Scores& s, const Walk& at) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = first_row + 8 * r + warp_lane / 4;
      VisibleColumns visible;
      if (at.partial() >= 0)
        visible = visible_columns(p.map, at.partial(), key, p.heads.log2_pack, quad);
      else if (key < keys)
        visible.add(0, C::kRows, quad);
#pragma unroll
      for (int n = 0; n < C::kQueryTiles; ++n)
#pragma unroll
        for (int parity = 0; parity < 2; ++parity)
          if (!visible.has(half * C::kQueryTiles + n, parity)) s[n][2 * r + parity] = -INFINITY;
    }
  }

  // s becomes P^T, dp becomes dS^T.
  LONGSPAN_DEVICE void differentiate(Scores& s, Scores& dp, uint32_t stats) const {
#pragma unroll
    for (int n = 0; n < C::kQueryTiles; ++n) {
      const auto column = static_cast<uint32_t>(8 * (half * C::kQueryTiles + n) + 2 * quad);
      float lse[2], delta[2];
      Isa::ld_shared(lse[0], lse[1], stats + 4 * column);
      Isa::ld_shared(delta[0], delta[1], stats + 4 * (C::kRows + column));
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[n][c] = Isa::exp2(Isa::fma(s[n][c], p.scale_log2, -lse[c % 2]));
        dp[n][c] = s[n][c] * (dp[n][c] - delta[c % 2]);
      }
    }
  }

  LONGSPAN_DEVICE void store_scores(uint32_t tile, const Scores& s) const {
#pragma unroll
    for (int n = 0; n < C::kQueryTiles; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        ScoreTile::store_pair(tile, first_row + 8 * r + warp_lane / 4,
                              8 * (half * C::kQueryTiles + n) + 2 * quad,
                              Isa::template pack<Element>(s[n][2 * r], s[n][2 * r + 1]));
  }

  // sums += scores times rows (dO or Q). `scores` are in registers, or all 16 x kRows in `tile`.
  LONGSPAN_DEVICE void accumulate(Sums& sums, const Scores& scores, uint32_t tile, uint32_t row_tile) const {
    const int lane = Isa::opaque(warp_lane);
#pragma unroll
    for (int step = 0; step < C::kRows / 16; ++step) {
      uint32_t a[4];
      if constexpr (C::kHalves == 1)
        accumulators_as_a<Isa, Element>(a, scores[2 * step], scores[2 * step + 1]);
      else
        ScoreTile::load_a(a, tile, first_row, 2 * step, lane);
#pragma unroll
      for (int n = 0; n < C::kDimTiles; n += 2) {
        uint32_t b[4];
        RowTile::load_b_trans(b, row_tile, 16 * step, half * C::kDimTiles + n, lane);
        Isa::template mma<Element>(sums[n], a, b[0], b[1]);
        Isa::template mma<Element>(sums[n + 1], a, b[2], b[3]);
      }
    }
  }

  LONGSPAN_DEVICE void add_dq(const Visit& visit) const {
    const int lane = Isa::opaque(warp_lane);
    const int64_t tile = query_tile(visit);
    float* sums = p.dq_sums + tile * C::kRows * C::kHeadDim;
    const int warp = thread / 32, m_first = warp % C::kDqRowGroups * C::kDqRowTiles,
              n_first = warp / C::kDqRowGroups * C::kDqPairs * 2;
    if (p.turns != nullptr) {
      if (thread == 0) Isa::acquire(p.turns + tile, visit.at.turn(p.map));
      Isa::sync();
    }
#pragma unroll
    for (int pair = 0; pair < C::kDqPairs; pair += C::kDqPairsAtOnce) {
      float dq[C::kDqRowTiles][2 * C::kDqPairsAtOnce][4] = {};
#pragma unroll
      for (int step = 0; step < C::kKeys / 16; ++step) {
        uint32_t a[C::kDqRowTiles][4];
#pragma unroll
        for (int m = 0; m < C::kDqRowTiles; ++m)
          ScoreTile::load_a_trans(a[m], ds, 16 * step, 2 * (m_first + m), lane);
#pragma unroll
        for (int n = 0; n < 2 * C::kDqPairsAtOnce; n += 2) {
          uint32_t b[4];
          KeyTile::load_b_trans(b, k, 16 * step, n_first + 2 * pair + n, lane);
#pragma unroll
          for (int m = 0; m < C::kDqRowTiles; ++m) {
            Isa::template mma<Element>(dq[m][n], a[m], b[0], b[1]);
            Isa::template mma<Element>(dq[m][n + 1], a[m], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int m = 0; m < C::kDqRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < 2 * C::kDqPairsAtOnce; ++n)
#pragma unroll
          for (int c = 0; c < 4; ++c)
            Isa::add(sums + dq_index((m_first + m) * (C::kHeadDim / 8) + n_first + 2 * pair + n, c, lane),
                     dq[m][n][c]);
    }
    if (p.turns != nullptr) {
      Isa::fence();
      Isa::sync();
      if (thread == 0) Isa::release(p.turns + tile, visit.at.turn(p.map) + 1);
    }
  }

  LONGSPAN_DEVICE void store_sums(const TensorRows& to, const Sums& sums, float scale, uint32_t tile) const {
#pragma unroll
    for (int n = 0; n < C::kDimTiles; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first_row + 8 * r + warp_lane / 4, column = 8 * (half * C::kDimTiles + n) + 2 * quad;
        const float x = sums[n][2 * r] * scale, y = sums[n][2 * r + 1] * scale;
        if (to.is_f32 == 0) {
          KeyTile::store_pair(tile, row, column, Isa::template pack<Element>(x, y));
        } else if (row < keys && column < p.heads.head_dim) {
          float* at = to.row<float>(first_key + row, kv_head) + column;
          at[0] = x;
          at[1] = y;
        }
      }
  }
  LONGSPAN_DEVICE void store_tile(const TensorRows& to, uint32_t tile) const {
    if (to.is_f32 != 0) return;
    for (int i = thread; i < C::kKeys * KeyTile::kChunks; i += C::kThreads) {
      const int row = i / KeyTile::kChunks, chunk = i % KeyTile::kChunks;
      if (row >= keys || 8 * chunk >= p.heads.head_dim) continue;
      *reinterpret_cast<Vector*>(to.row<uint16_t>(first_key + row, kv_head) + 8 * chunk) =
          KeyTile::load_chunk(tile, row, chunk);
    }
  }

  LONGSPAN_DEVICE int64_t item_number() const {
    if (p.turns == nullptr) return Isa::block();
    if (thread == 0) Isa::st_shared(ds, static_cast<uint32_t>(Isa::take(p.next_item)));
    Isa::sync();
    return Isa::ld_shared(ds);
  }

  LONGSPAN_DEVICE void visit_rows(const Visit& visit, const Visit& next, bool has_next, int stage) {
    const uint32_t q = q_of(stage), dout = dout_of(stage);
    Isa::template cp_async_wait<0>();
    Isa::sync();  // A: the rows are there; dS and the other stage are free
    if (C::kStages == 2 && has_next) begin(next, 1 - stage);
    Scores s = {}, dp = {};
    multiply(s, k, q);
    multiply(dp, v, dout);
    if (visit.at.partial() >= 0 || keys < C::kKeys) hide(s, visit.at);
    differentiate(s, dp, stats_of(stage));
    if constexpr (C::kHalves > 1) {
      store_scores(weights, s);
      store_scores(ds, dp);
      Isa::sync();
    }
    accumulate(dv, s, weights, dout);
    if constexpr (C::kHalves == 1) store_scores(ds, dp);
    accumulate(dk, dp, ds, q);
    Isa::sync();  // B: dS is there; the rows are free
    if (C::kStages == 1 && has_next) begin(next, stage);
    add_dq(visit);
  }

  LONGSPAN_DEVICE void run() {
    const ItemOrder::Item item = p.order.item(item_number());
    kv_head = item.head;
    const MapRow row = p.map.rows[(p.heads.per_head_masks != 0 ? kv_head * p.map.row_tiles : 0) + item.row];
    first_key = row.tile * C::kKeys;
    keys = p.heads.tokens_kv - first_key;
    if (keys > C::kKeys) keys = C::kKeys;
    if (row.runs > 0) {
      KeyTile::template copy<C::kThreads>(k, p.k, first_key, kv_head, keys, p.heads.head_dim / 8, 0, thread);
      KeyTile::template copy<C::kThreads>(v, p.v, first_key, kv_head, keys, p.heads.head_dim / 8, 0, thread);
      Visit visit{0, Walk(p.map, row)};
      begin(visit, 0);
      int stage = 0;
      bool has_next = true;
#pragma unroll 1
      while (has_next) {
        Visit next = visit;
        next.at.next(p.map);
        if (next.at.done()) next = {visit.unit + 1, Walk(p.map, row)};
        has_next = next.unit < p.heads.units_per_kv;
        visit_rows(visit, next, has_next, stage);
        visit = next;
        if (C::kStages == 2) stage = 1 - stage;
      }
    }
    Isa::sync();  // K is free
    store_sums(p.dk, dk, p.scale, k);
    store_sums(p.dv, dv, 1, v);
    Isa::sync();
    store_tile(p.dk, k);
    store_tile(p.dv, v);
  }
};

}  // namespace longspan::portable
