// The parameters of the portable kernels. Plain data for host and device code.
#pragma once

#include <cstdint>

#include "kernels/portable/map.h"

namespace longspan::portable {

// A tensor [tokens, heads, head_dim]; strides in elements.
struct TensorRows {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
  int32_t is_f32 = 0;  // otherwise the kernel's element type

  template <class T>
  constexpr T* row(int64_t token, int64_t head) const {
    return static_cast<T*>(data) + token * token_stride + head * head_stride;
  }
};

// The heads of a problem and how rows of several query heads share a tile. Row r of a tile is token
// r >> log2_pack of the tile and query head r & (pack - 1) of the unit. A unit is `pack` query heads of a
// group.
struct Heads {
  int32_t tokens_q = 0, tokens_kv = 0;
  int32_t head_dim = 0, head_dim_v = 0;  // of q and k; of v and o
  int32_t heads_kv = 0, units_per_kv = 1, log2_pack = 0;
  int32_t per_head_masks = 0;  // 0: one mask for all heads

  constexpr int32_t units() const { return heads_kv * units_per_kv; }
  constexpr int32_t pack() const { return 1 << log2_pack; }
};

// A KernelMap where the kernel reads it.
struct MapView {
  const MapRow* rows = nullptr;
  const MapRun* runs = nullptr;
  const uint32_t* spans = nullptr;
  const int32_t* slots = nullptr;
  int32_t items = 0, rows_per_tile = 0;

  constexpr uint32_t span(int32_t layer, int32_t row) const {
    return spans[int64_t{layer} * rows_per_tile + row];
  }
};

// Items are handed out section by section, so that K and V of a section stay in L2; within a section by
// descending cost, for all heads of it. A head here is a unit (forward) or a KV head (backward).
struct ItemOrder {
  int32_t heads = 0, section_heads = 1, map_items = 0;

  struct Item {
    int32_t row = 0, head = 0;  // row: of the map
  };
  constexpr Item item(int64_t number) const {
    const int64_t section_items = int64_t{section_heads} * map_items;
    const auto section = static_cast<int32_t>(number / section_items);
    const auto rest = static_cast<int32_t>(number % section_items);
    const int32_t first = section * section_heads;
    const int32_t here = heads - first < section_heads ? heads - first : section_heads;
    return {rest / here, first + rest % here};
  }
  constexpr int64_t items() const { return int64_t{heads} * map_items; }
};

// How scores come from products, where they are not just scaled: score_change.h.
struct ScoreChange {
  float scale_log2 = 0;                    // softmax scale * log2(e)
  float cap_log2 = 0, scale_over_cap = 0;  // softcap * log2(e), softmax scale / softcap; 0: no softcap
  const float* slopes = nullptr;           // [heads_q]; null: no ALiBi
  int32_t shift = 0;                       // tokens_kv - tokens_q

  constexpr bool any() const { return cap_log2 != 0 || slopes != nullptr; }
};

struct ForwardParams {
  TensorRows q, k, v, o;
  float* lse = nullptr;  // [heads_q, tokens_q]
  TensorRows part_o;     // f32: a partial result over other keys to merge with, if part_lse is set
  const float* part_lse = nullptr;
  const float* sinks = nullptr;  // [heads_q]; null: none
  MapView map;
  Heads heads;
  ItemOrder order;
  float scale_log2 = 0;  // softmax scale * log2(e); 1 where `change` scales the scores
  ScoreChange change;
};

struct BackwardParams {
  TensorRows q, k, v, o, dout, dq, dk, dv;
  const float *lse = nullptr, *dlse = nullptr;  // [heads_q, tokens_q]; dlse may be null
  MapView map;                                  // row tiles are tiles of keys, columns are queries
  Heads heads;
  ItemOrder order;
  float scale = 0, scale_log2 = 0;
  ScoreChange change;

  int32_t rows = 0, padded_head_dim = 0;  // of the shape
  int32_t query_tiles = 0;                // of a unit
  float* stats = nullptr;    // [units, query_tiles, 2, rows]: lse * log2(e), +inf for no row; delta
  float* dq_sums = nullptr;  // [units, query_tiles, rows * padded head_dim]: m16n8 fragments of 128
  float* dkv_sums =
      nullptr;  // [heads_kv, slots, 2, keys * padded head_dim]: dk, dv of tiles in pieces, as dq_sums
  int32_t* arrived = nullptr;    // [heads_kv, slots]: pieces that have added to them
  int32_t slots = 0, keys = 0;   // keys: of the shape
  int32_t* turns = nullptr;      // [units, query_tiles]: additions so far; null: in any order
  int32_t* next_item = nullptr;  // with turns: items in the order in which CTAs begin
};

}  // namespace longspan::portable
