// The portable backward kernel, for every mask. One CTA is one item: a tile of keys of a KV head, whose dK
// and dV stay in registers while the rows that see it pass by.
//
//   K, V        kKeys keys, in shared memory for the item's life
//   Q, dO       kRows rows (tokens x query heads of a group), kStages buffers, with lse and delta of each row
//   S^T, dP^T   each warp has a part of the keys and of the rows, nearly square: reading operands from shared
//               memory is what limits these products
//   P^T, dS^T   through shared memory; a warp that has all rows keeps them in registers for dV and dK, behind
//               S^T and dP^T, and only dS^T goes through shared memory, for dQ
//   dK, dV      each warp has a part of the keys and of head_dim; dQ: of the rows and of head_dim
//
//   barrier A | S^T, P^T, dP^T, dS^T | barrier B | dV += P^T dO, dK += dS^T Q, dQ += dS K
//
// The next rows begin before barrier B or, with one stage, before dQ: behind a third barrier, if dV and dK
// come behind B. dQ is added to fp32 sums in global memory: at once, or in turns, which makes it
// deterministic. CTAs that wait for turns take items in the order in which they begin, so they only wait for
// CTAs that began before.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/portable/score_change.h"
#include "kernels/portable/shape.h"
#include "kernels/portable/tile.h"
#include "kernels/portable/visible.h"

namespace longspan::portable {

template <class Element_, BackwardShape kShape, bool kChangesScores_ = false>
struct BackwardConfig {
  using Element = Element_;
  static constexpr bool kChangesScores = kChangesScores_;
  static constexpr int kHeadDim = kShape.head_dim, kRows = kShape.rows, kKeys = kShape.keys,
                       kWarps = kShape.warps, kKeyGroups = kShape.key_groups, kStages = kShape.stages,
                       kParts = kShape.parts, kDqParts = kShape.dq_parts;
  static constexpr bool kKeepsScores = kShape.keeps_scores();
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kSteps = kHeadDim / 16;
  static constexpr int kOtherGroups = kWarps / kKeyGroups;
  static constexpr int kKeyTiles = kKeys / 16 / kKeyGroups;  // of a warp
  static constexpr int kPartRows = kRows / kParts;
  static constexpr int kQueryTiles = kPartRows / 8 / kOtherGroups;  // of S^T in a warp
  static constexpr int kDimTiles = kHeadDim / 8 / kOtherGroups;     // of dK and dV in a warp
  static_assert(kKeys == 16 * kKeyTiles * kKeyGroups && kRows == 8 * kQueryTiles * kOtherGroups * kParts &&
                kHeadDim == 8 * kDimTiles * kOtherGroups && kWarps == kKeyGroups * kOtherGroups);
  static_assert(kQueryTiles % 2 == 0 && kDimTiles % 2 == 0 && kRows <= 128);
  static_assert((kQueryTiles & (kQueryTiles - 1)) == 0,
                "a warp's columns begin at a multiple of their number");

  static constexpr int kDqRowGroups = kShape.dq_rows, kDqDimGroups = kWarps / kDqRowGroups;
  static constexpr int kDqRowTiles = kRows / 16 / kDqRowGroups / kDqParts;  // of a warp
  static constexpr int kDqPairs = kHeadDim / 16 / kDqDimGroups;             // of products, side by side
  static_assert(kRows == 16 * kDqRowTiles * kDqRowGroups * kDqParts &&
                kHeadDim == 16 * kDqPairs * kDqDimGroups);
};

template <class Isa, class C>
struct Backward {
  using Element = typename C::Element;
  using KeyTile = Tile<Isa, C::kKeys, C::kHeadDim>;
  using RowTile = Tile<Isa, C::kRows, C::kHeadDim>;
  using ScoreTile = Tile<Isa, C::kKeys, C::kRows>;          // of P and dS
  using Scores = float[C::kKeyTiles][C::kQueryTiles][4];    // of S^T and dP^T: rows are keys
  using Pairs = uint32_t[C::kKeyTiles][C::kQueryTiles][2];  // of elements of P^T or dS^T
  using Sums = float[C::kKeyTiles][C::kDimTiles][4];

  static constexpr uint32_t kStatsBytes = 2 * C::kRows * sizeof(float);
  static constexpr uint32_t kSpansBytes = C::kKeys * sizeof(uint32_t);
  static constexpr uint32_t kStageBytes = 2 * RowTile::kBytes + kStatsBytes + kSpansBytes;

  const BackwardParams& p;
  const int thread = Isa::thread(), warp_lane = thread % 32;
  const int warp_key = thread / 32 / C::kOtherGroups * 16 * C::kKeyTiles;  // the warp's first
  const int other = thread / 32 % C::kOtherGroups;  // the warp's part of the rows or of head_dim
  const uint32_t k = Isa::shared_memory(), v = k + KeyTile::kBytes, stages = v + KeyTile::kBytes,
                 ds = stages + C::kStages * kStageBytes, weights = ds + ScoreTile::kBytes;
  int kv_head = 0, map_row = 0, first_key = 0;  // of the item
  Sums dk = {}, dv = {};

  // A visit: a tile of rows of one unit of query heads. The last rows come first: below a diagonal, CTAs then
  // read the same rows at the same time.
  using RowWalk = Walk<-1>;
  struct Visit {
    int unit;
    RowWalk at;
  };

  LONGSPAN_DEVICE explicit Backward(const BackwardParams& params) : p(params) {}

  LONGSPAN_DEVICE int keys() const { return p.heads.tokens_kv - first_key; }  // from the first one on
  LONGSPAN_DEVICE uint32_t q_of(uint32_t stage) const { return stages + stage * kStageBytes; }
  LONGSPAN_DEVICE uint32_t dout_of(uint32_t stage) const { return q_of(stage) + RowTile::kBytes; }
  LONGSPAN_DEVICE uint32_t stats_of(uint32_t stage) const { return q_of(stage) + 2 * RowTile::kBytes; }
  // The spans of a partial tile's keys in its first layer.
  LONGSPAN_DEVICE uint32_t spans_of(uint32_t stage) const { return stats_of(stage) + kStatsBytes; }
  LONGSPAN_DEVICE int query_tile(const Visit& visit) const {
    return (kv_head * p.heads.units_per_kv + visit.unit) * p.query_tiles + visit.at.tile();
  }

  LONGSPAN_DEVICE void begin(const Visit& visit, uint32_t stage) const {
    const int tile_tokens = C::kRows >> p.heads.log2_pack;
    const int first = visit.at.tile() * tile_tokens;
    int tokens = p.heads.tokens_q - first;
    if (tokens > tile_tokens) tokens = tile_tokens;
    const int head = (kv_head * p.heads.units_per_kv + visit.unit) << p.heads.log2_pack;
    const int rows = tokens << p.heads.log2_pack;
    const int thread = Isa::opaque(this->thread);
    RowTile::template copy<C::kThreads>(q_of(stage), p.q, first, head, rows, p.heads.head_dim / 8,
                                        p.heads.log2_pack, thread);
    RowTile::template copy<C::kThreads>(dout_of(stage), p.dout, first, head, rows, p.heads.head_dim_v / 8,
                                        p.heads.log2_pack, thread);
    if (thread < static_cast<int>(kStatsBytes / 16))
      Isa::cp_async(stats_of(stage) + static_cast<uint32_t>(16 * thread),
                    p.stats + int64_t{query_tile(visit)} * 2 * C::kRows + 4 * thread, true);
    if (!visit.at.full() && thread < C::kKeys / 4)
      Isa::cp_async(spans_of(stage) + static_cast<uint32_t>(16 * thread),
                    p.map.spans + int64_t{visit.at.layer()} * C::kKeys + 4 * thread, true);
    Isa::cp_async_commit();
  }

  // s = keys (K or V) times a part of the rows (Q or dO), transposed, with operands loaded ahead.
  LONGSPAN_DEVICE void multiply(Scores& s, uint32_t key_tile, uint32_t row_tile, int part) const {
    row_tile += RowTile::rows(part * C::kPartRows);
    const int lane = Isa::opaque(warp_lane);
    uint32_t a[2][C::kKeyTiles][4], b[2][C::kQueryTiles / 2][4];
    const auto load = [&](int step) {
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
        KeyTile::load_a(a[step % 2][m], key_tile, warp_key + 16 * m, 2 * step, lane);
#pragma unroll
      for (int n = 0; n < C::kQueryTiles; n += 2)
        RowTile::load_b(b[step % 2][n / 2], row_tile, 8 * (other * C::kQueryTiles + n), 2 * step, lane);
    };
    load(0);
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      if (step + 1 < C::kSteps) load(step + 1);
#pragma unroll
      for (int n = 0; n < C::kQueryTiles; ++n)
#pragma unroll
        for (int m = 0; m < C::kKeyTiles; ++m)
          Isa::template mma<Element>(s[m][n], a[step % 2][m], b[step % 2][n / 2][n % 2 * 2],
                                     b[step % 2][n / 2][n % 2 * 2 + 1]);
    }
  }

  // Where accumulators of S^T and dP^T lie in the tile; the lane is opaque where addresses follow from it.
  LONGSPAN_DEVICE int key_of(int m, int r, int lane) const {
    return warp_key + 16 * m + 8 * r + lane / 4;
  }
  LONGSPAN_DEVICE int column_of(int n, int part, int lane) const {
    return 8 * (first_query_tile(part) + n) + 2 * (lane % 4);
  }
  LONGSPAN_DEVICE int first_query_tile(int part) const {
    return (part * C::kOtherGroups + other) * C::kQueryTiles;
  }

  LONGSPAN_DEVICE void hide(Scores& s, const RowWalk& at, uint32_t spans, int part) const {
    const int lane = Isa::opaque(warp_lane), quad = lane % 4;
#pragma unroll
    for (int i = 0; i < 2 * C::kKeyTiles; ++i) {
      const int key = key_of(i / 2, i % 2, lane);
      VisibleColumns visible;
      if (!at.full())
        visible = visible_columns(p.map, at, Isa::ld_shared(spans + static_cast<uint32_t>(4 * key)), key,
                                  p.heads.log2_pack, quad);
      else if (key < keys())
        visible.add(0, C::kRows, quad);
#pragma unroll
      for (int n = 0; n < C::kQueryTiles; ++n)
#pragma unroll
        for (int parity = 0; parity < 2; ++parity)
          if (!visible.has(first_query_tile(part) + n, parity)) s[i / 2][n][i % 2 * 2 + parity] = -INFINITY;
    }
  }

  // S^T to P^T, in pairs of the element type, which take half of the registers.
  LONGSPAN_DEVICE void weigh(Pairs& weights, const Scores& s, uint32_t stats, int part) const {
    const int lane = Isa::opaque(warp_lane);
#pragma unroll
    for (int n = 0; n < C::kQueryTiles; ++n) {
      float lse[2];
      Isa::ld_shared(lse[0], lse[1], stats + static_cast<uint32_t>(4 * column_of(n, part, lane)));
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          weights[m][n][r] =
              Isa::template pack<Element>(Isa::exp2(Isa::fma(s[m][n][2 * r], p.scale_log2, -lse[0])),
                                          Isa::exp2(Isa::fma(s[m][n][2 * r + 1], p.scale_log2, -lse[1])));
    }
  }
  // The same where scores are not just scaled. `tilted` is P^T times the derivatives of the scores.
  LONGSPAN_DEVICE void weigh_changed(Pairs& weights, Pairs& tilted, const Scores& s, uint32_t stats,
                                     const Visit& visit, int part) const {
    const int lane = Isa::opaque(warp_lane);
    const int first_token = visit.at.tile() * (C::kRows >> p.heads.log2_pack) + p.change.shift - first_key;
    const int head = (kv_head * p.heads.units_per_kv + visit.unit) << p.heads.log2_pack;
#pragma unroll
    for (int n = 0; n < C::kQueryTiles; ++n) {
      const int column = column_of(n, part, lane);
      float lse[2], slope[2];
      int ahead[2];  // of the tile's first key
      Isa::ld_shared(lse[0], lse[1], stats + static_cast<uint32_t>(4 * column));
#pragma unroll
      for (int parity = 0; parity < 2; ++parity) {
        slope[parity] = slope_of(p.change, head + ((column + parity) & (p.heads.pack() - 1)));
        ahead[parity] = first_token + ((column + parity) >> p.heads.log2_pack);
      }
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float weight[2], times_slope[2];
#pragma unroll
          for (int parity = 0; parity < 2; ++parity) {
            const float product = s[m][n][2 * r + parity];
            const Capped score = capped<Isa>(p.change, product);
            const float less = penalty(slope[parity], ahead[parity] - key_of(m, r, lane)) + lse[parity];
            // A cap would bound what is hidden.
            weight[parity] = product == -INFINITY ? 0 : Isa::exp2(score.score - less);
            times_slope[parity] = weight[parity] * score.derivative;
          }
          weights[m][n][r] = Isa::template pack<Element>(weight[0], weight[1]);
          tilted[m][n][r] = Isa::template pack<Element>(times_slope[0], times_slope[1]);
        }
    }
  }
  // P^T and dP^T to dS^T, in place of P^T.
  LONGSPAN_DEVICE void differentiate(Pairs& weights, const Scores& dp, uint32_t stats, int part) const {
    const int lane = Isa::opaque(warp_lane);
#pragma unroll
    for (int n = 0; n < C::kQueryTiles; ++n) {
      float delta[2];
      Isa::ld_shared(delta[0], delta[1],
                     stats + static_cast<uint32_t>(4 * (C::kRows + column_of(n, part, lane))));
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float low, high;
          Isa::template unpack<Element>(weights[m][n][r], low, high);
          weights[m][n][r] = Isa::template pack<Element>(low * (dp[m][n][2 * r] - delta[0]),
                                                         high * (dp[m][n][2 * r + 1] - delta[1]));
        }
    }
  }

  LONGSPAN_DEVICE void store_pairs(uint32_t tile, const Pairs& pairs, int part) const {
    const int lane = Isa::opaque(warp_lane);
    const uint32_t at = ScoreTile::pair_address(tile, key_of(0, 0, lane), column_of(0, part, lane));
#pragma unroll
    for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
      for (int n = 0; n < C::kQueryTiles; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          Isa::st_shared(ScoreTile::move(at, n) + ScoreTile::rows(16 * m + 8 * r), pairs[m][n][r]);
  }

  // sums += scores (P^T or dS^T) times rows (dO or Q), with the operands of the next products loaded ahead.
  // `load_scores` gives those of a step of 16 rows.
  template <int kSteps, class LoadScores>
  LONGSPAN_DEVICE void accumulate(Sums& sums, const LoadScores& load_scores, uint32_t rows) const {
    constexpr int kPairs = C::kDimTiles / 2, kProducts = kSteps * kPairs;
    const int lane = Isa::opaque(warp_lane);
    uint32_t a[2][C::kKeyTiles][4], b[2][4];
    const auto load_rows = [&](int i) {
      RowTile::load_b_trans(b[i % 2], rows, i / kPairs * 16, other * C::kDimTiles + i % kPairs * 2, lane);
    };
    load_scores(a[0], 0, lane);
    load_rows(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        const int i = step * kPairs + n;
        if (i + 1 < kProducts) load_rows(i + 1);
        if (n == 0 && step + 1 < kSteps) load_scores(a[(step + 1) % 2], step + 1, lane);
#pragma unroll
        for (int m = 0; m < C::kKeyTiles; ++m) {
          Isa::template mma<Element>(sums[m][2 * n], a[step % 2][m], b[i % 2][0], b[i % 2][1]);
          Isa::template mma<Element>(sums[m][2 * n + 1], a[step % 2][m], b[i % 2][2], b[i % 2][3]);
        }
      }
  }
  // Of all rows, scores from their tile.
  LONGSPAN_DEVICE void accumulate_tile(Sums& sums, uint32_t score_tile, uint32_t row_tile) const {
    const auto load = [&](uint32_t(&a)[C::kKeyTiles][4], int step, int lane) {
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
        ScoreTile::load_a(a[m], score_tile, warp_key + 16 * m, 2 * step, lane);
    };
    accumulate<C::kRows / 16>(sums, load, row_tile);
  }
  // Of a part of the rows, scores from the warp's own registers.
  LONGSPAN_DEVICE void accumulate_pairs(Sums& sums, const Pairs& pairs, uint32_t row_tile, int part) const {
    const auto load = [&](uint32_t(&a)[C::kKeyTiles][4], int step, int) {
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = pairs[m][2 * step + i / 2][i % 2];
    };
    accumulate<C::kPartRows / 16>(sums, load, row_tile + RowTile::rows(part * C::kPartRows));
  }

  // dQ of the rows of query tile `tile`, added to the sums.
  LONGSPAN_DEVICE void add_dq(int tile, int turn) const {
    float* const sums = p.dq_sums + int64_t{tile} * (C::kRows * C::kHeadDim);
#pragma unroll 1
    for (int part = 0; part < C::kDqParts; ++part) {
      const int lane = Isa::opaque(warp_lane), warp = thread / 32;
      const int m_first = (part * C::kDqRowGroups + warp % C::kDqRowGroups) * C::kDqRowTiles,
                n_first = warp / C::kDqRowGroups * C::kDqPairs * 2;
      float dq[C::kDqRowTiles][2 * C::kDqPairs][4] = {};
      multiply_keys(dq, m_first, n_first, lane);
      if (p.turns != nullptr && part == 0) {
        if (thread == 0) Isa::acquire(p.turns + tile, turn);
        Isa::sync();
      }
#pragma unroll
      for (int m = 0; m < C::kDqRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < 2 * C::kDqPairs; ++n)
          Isa::add_four(sums + ((m_first + m) * (C::kHeadDim / 8) + n_first + n) * 128, lane, dq[m][n]);
    }
    if (p.turns != nullptr) {
      Isa::fence();
      Isa::sync();
      if (thread == 0) Isa::release(p.turns + tile, turn + 1);
    }
  }
  // dq = dS K, for rows from 16 * m_first and columns from 8 * n_first on.
  LONGSPAN_DEVICE void multiply_keys(float (&dq)[C::kDqRowTiles][2 * C::kDqPairs][4], int m_first,
                                     int n_first, int lane) const {
    constexpr int kSteps = C::kKeys / 16;
    uint32_t a[2][C::kDqRowTiles][4], b[2][C::kDqPairs][4];
    const auto load = [&](int step) {
#pragma unroll
      for (int m = 0; m < C::kDqRowTiles; ++m)
        ScoreTile::load_a_trans(a[step % 2][m], ds, 16 * step, 2 * (m_first + m), lane);
#pragma unroll
      for (int n = 0; n < C::kDqPairs; ++n)
        KeyTile::load_b_trans(b[step % 2][n], k, 16 * step, n_first + 2 * n, lane);
    };
    load(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) load(step + 1);
#pragma unroll
      for (int n = 0; n < C::kDqPairs; ++n)
#pragma unroll
        for (int m = 0; m < C::kDqRowTiles; ++m) {
          Isa::template mma<Element>(dq[m][2 * n], a[step % 2][m], b[step % 2][n][0], b[step % 2][n][1]);
          Isa::template mma<Element>(dq[m][2 * n + 1], a[step % 2][m], b[step % 2][n][2], b[step % 2][n][3]);
        }
    }
  }

  // Adds dK and dV to the sums of the tile's pieces. True for the last piece to arrive, which takes them all.
  LONGSPAN_DEVICE bool last_piece() {
    const MapRow row = p.map.rows[map_row];
    const int slot = kv_head * p.slots + row.slot;
    constexpr int kOfWarp = C::kKeyTiles * C::kDimTiles;  // fragments
    float* const sums =
        p.dkv_sums + int64_t{slot} * (2 * C::kKeys * C::kHeadDim) + thread / 32 * (2 * kOfWarp * 128);
    const auto each = [&](auto&& apply) {
#pragma unroll
      for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
        for (int n = 0; n < C::kDimTiles; ++n) {
          apply(sums + (m * C::kDimTiles + n) * 128, dk[m][n]);
          apply(sums + (kOfWarp + m * C::kDimTiles + n) * 128, dv[m][n]);
        }
    };
    each([&](float* at, float(&four)[4]) { Isa::add_four(at, warp_lane, four); });
    Isa::fence();
    Isa::sync();
    if (thread == 0) Isa::st_shared(ds, static_cast<uint32_t>(Isa::take(p.arrived + slot)));
    Isa::sync();
    if (static_cast<int>(Isa::ld_shared(ds)) + 1 < row.pieces) return false;
    Isa::fence();
    each([&](float* at, float(&four)[4]) { Isa::sums_of_lane(at, warp_lane, four); });
    return true;
  }

  LONGSPAN_DEVICE void store_sums(const TensorRows& to, const Sums& sums, int head_dim, float scale,
                                  uint32_t tile) const {
#pragma unroll
    for (int m = 0; m < C::kKeyTiles; ++m)
#pragma unroll
      for (int n = 0; n < C::kDimTiles; ++n)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = key_of(m, r, warp_lane),
                    column = 8 * (other * C::kDimTiles + n) + 2 * (warp_lane % 4);
          const float x = sums[m][n][2 * r] * scale, y = sums[m][n][2 * r + 1] * scale;
          if (to.is_f32 == 0) {
            KeyTile::store_pair(tile, row, column, Isa::template pack<Element>(x, y));
          } else if (row < keys() && column < head_dim) {
            float* at = to.row<float>(first_key + row, kv_head) + column;
            at[0] = x;
            at[1] = y;
          }
        }
  }
  LONGSPAN_DEVICE void store_tile(const TensorRows& to, int head_dim, uint32_t tile) const {
    if (to.is_f32 != 0) return;
    for (int i = thread; i < C::kKeys * KeyTile::kChunks; i += C::kThreads) {
      const int row = i / KeyTile::kChunks, chunk = i % KeyTile::kChunks;
      if (row >= keys() || 8 * chunk >= head_dim) continue;
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

  // P^T and dS^T of a part of the rows: to shared memory or, where the warp has all rows, to dV and dK.
  LONGSPAN_DEVICE void score(const Visit& visit, uint32_t stage, int part) {
    const auto give_weights = [&](const Pairs& pairs) {
      if constexpr (C::kKeepsScores)
        accumulate_pairs(dv, pairs, dout_of(stage), part);
      else
        store_pairs(weights, pairs, part);
    };
    Pairs pairs;  // P^T; what dP^T - delta is multiplied by; dS^T
    {
      Scores s = {};
      multiply(s, k, q_of(stage), part);
      if (!visit.at.full() || keys() < C::kKeys) hide(s, visit.at, spans_of(stage), part);
      if constexpr (C::kChangesScores) {
        Pairs of_values;
        weigh_changed(of_values, pairs, s, stats_of(stage), visit, part);
        give_weights(of_values);
      } else {
        weigh(pairs, s, stats_of(stage), part);
      }
    }
    if constexpr (!C::kChangesScores) give_weights(pairs);
    Scores dp = {};
    multiply(dp, v, dout_of(stage), part);
    differentiate(pairs, dp, stats_of(stage), part);
    store_pairs(ds, pairs, part);
    if constexpr (C::kKeepsScores) accumulate_pairs(dk, pairs, q_of(stage), part);
  }

  LONGSPAN_DEVICE RowWalk walk() const {
    return RowWalk(p.map, p.map.rows[map_row]);
  }

  // Goes to the next rows, of the next unit behind the last ones.
  LONGSPAN_DEVICE void advance(Visit& visit) const {
    visit.at.next(p.map);
    if (visit.at.done()) visit = {visit.unit + 1, walk()};
  }
  LONGSPAN_DEVICE bool done(const Visit& visit) const {
    return visit.unit == p.heads.units_per_kv;
  }

  LONGSPAN_DEVICE void run() {
    const ItemOrder::Item item = p.order.item(item_number());
    kv_head = item.head;
    map_row = (p.heads.per_head_masks != 0 ? kv_head * p.map.items : 0) + item.row;
    if (p.map.rows[map_row].tile < 0) return;
    first_key = p.map.rows[map_row].tile * C::kKeys;
    if (p.map.rows[map_row].runs > 0) {
      KeyTile::template copy<C::kThreads>(k, p.k, first_key, kv_head, keys(), p.heads.head_dim / 8, 0,
                                          thread);
      KeyTile::template copy<C::kThreads>(v, p.v, first_key, kv_head, keys(), p.heads.head_dim_v / 8, 0,
                                          thread);
      Visit visit{0, walk()};
      begin(visit, 0);
      uint32_t stage = 0;
#pragma unroll 1
      while (!done(visit)) {
        Isa::template cp_async_wait<0>();
        Isa::sync();  // A: the rows are there; P, dS and the other stage are free
#pragma unroll 1
        for (int part = 0; part < C::kParts; ++part) score(visit, stage, part);
        const int tile = query_tile(visit), turn = p.turns != nullptr ? visit.at.turn(p.map) : 0;
        advance(visit);
        if (C::kStages == 2 && !done(visit)) begin(visit, 1 - stage);
        Isa::sync();  // B: P and dS are there
        if constexpr (!C::kKeepsScores) {
          accumulate_tile(dv, weights, dout_of(stage));
          accumulate_tile(dk, ds, q_of(stage));
          if (C::kStages == 1) Isa::sync();
        }
        if (C::kStages == 1 && !done(visit)) begin(visit, 0);  // the rows are free
        add_dq(tile, turn);
        if (C::kStages == 2) stage = 1 - stage;
      }
    }
    Isa::sync();  // K is free
    if (p.map.rows[map_row].slot >= 0 && !last_piece()) return;
    store_sums(p.dk, dk, p.heads.head_dim, p.scale, k);
    store_sums(p.dv, dv, p.heads.head_dim_v, 1, v);
    Isa::sync();
    store_tile(p.dk, p.heads.head_dim, k);
    store_tile(p.dv, p.heads.head_dim_v, v);
  }
};

}  // namespace longspan::portable
