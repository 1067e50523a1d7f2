// What the backward kernel reads besides tensors: the tile map by columns and the order of work. Plain data,
// shared by host and device code.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

// Where a gradient is written: [tokens, heads, head_dim], strides in elements.
struct GradientView {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
};

struct BackwardParams {
  CUtensorMap q, dout, k, v;

  const float* stats =
      nullptr;  // [heads_q, row_tiles, 2, rows]: -lse * log2(e), then delta (backward_layout.h)
  // Sums in fp32, in the order in which a warpgroup's threads hold them (backward_layout.h).
  float* dq = nullptr;   // [heads_q, row_tiles, rows * head_dim]
  float* dkv = nullptr;  // [heads_kv, key_tiles, 2, keys * head_dim]: dk, dv; null if every item has a group
  GradientView dk, dv;   // where dkv is null
  int32_t fp32_output = 0;

  // The map of the transposed mask: its row tiles are key tiles, its columns are rows of q.
  const WorkRow* work = nullptr;  // [masks, key_tiles], heaviest first
  const DeviceRun* runs = nullptr;
  const DevicePartial* partials = nullptr;
  const uint32_t* spans = nullptr;  // [layers, keys]: begin in the low half, end in the high half

  // With BackwardStore::kOrdered, of BackwardTurns; and whose turn it is, or with kClaimed, a DqState.
  const uint32_t* first_turn = nullptr;  // [masks, key_tiles]
  const int32_t* turns = nullptr;
  int32_t* turn = nullptr;      // [heads_q, row_tiles, 2]: of each warpgroup's half of dq
  int32_t* dkv_turn = nullptr;  // [heads_kv, key_tiles, 2]: of each warpgroup's half of dkv, by parts
  int32_t descending = 0;

  int32_t key_tiles = 0, row_tiles = 0;
  int32_t per_head_masks = 0;  // 0: one mask for all heads
  int32_t parts = 1;           // items that share a key tile's query heads among them
  int32_t heads_per_item = 0;  // query heads of an item: group / parts
  int32_t units = 0;           // heads_kv * parts: what one work item covers of the heads
  int32_t section_units = 0;   // units that are worked on together, so that their rows stay in L2
  int32_t last_section = 0;    // takes all units that are left: enough items, so that all blocks end together
  int32_t items = 0;           // key_tiles * units
  int32_t tokens_kv = 0;

  float scale = 0;              // of the scores
  float scale_log2 = 0;         // scale * log2(e)
  int32_t* counters = nullptr;  // [2]: next item, workers done; zero between launches
};

}  // namespace longspan::sm90
