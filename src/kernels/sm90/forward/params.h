// The parameters of the forward kernel: tensors, the compiled tile map, the order of work. Plain data for
// host and device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "kernels/sm90/forward/planner/map.h"

namespace longspan::sm90 {

struct ForwardParams {
  CUtensorMap q, k, v, o;  // o is unused if o_f32 is set
  // Maps of o in boxes of one panel and 2^i tokens, for row tiles that are shorter than the box of `o`.
  static constexpr int kPanelMaps = 6;
  CUtensorMap o_panel[kPanelMaps];

  float* o_f32 = nullptr;  // [tokens_q, heads_q, head_dim]: set if the output is fp32
  int64_t o_token_stride = 0, o_head_stride = 0;
  float* lse = nullptr;  // [heads_q, tokens_q]

  // If set, a partial result over other keys that the output is merged with.
  const float* part_o = nullptr;  // [tokens_q, heads_q, head_dim]
  int64_t part_token_stride = 0, part_head_stride = 0;
  const float* part_lse = nullptr;  // [heads_q, tokens_q]
  const float* sinks = nullptr;     // [heads_q]: in place of a part, lse of one without a value

  const MapRow* work = nullptr;  // [masks, row_tiles], heaviest first
  const MapEntry* entries = nullptr;
  const uint32_t* spans = nullptr;  // [layers, rows_per_tile]: begin in the low half, end in the high half
  const uint8_t* plan = nullptr;    // work, entries and spans are one range of memory
  uint32_t plan_bytes = 0;
  WorkOrder order;  // of heads_q / pack units

  int32_t* next_item = nullptr;  // less the grid's workers; zero before the launch; null: each has one
  void* o_raw = nullptr;         // data of o, with the strides of o_f32

  int32_t per_head_masks = 0;  // 0: one mask for all heads
  int32_t units_per_kv = 0;
  int32_t tokens_q = 0, tokens_kv = 0;
  int32_t rows_per_tile = 0;  // tokens of a row tile
  int32_t log2_pack = 0;      // query heads of a GQA group that share a row tile

  float scale = 0;       // of the scores
  float scale_log2 = 0;  // scale * log2(e)
  int32_t fault = 0;     // a Fault, in builds that have them (faults.cuh)
};
// Each partial tile reads both by one load. Two cost documents and windows 1 %.
static_assert(offsetof(ForwardParams, rows_per_tile) % 8 == 0 &&
              offsetof(ForwardParams, log2_pack) == offsetof(ForwardParams, rows_per_tile) + 4);

}  // namespace longspan::sm90
