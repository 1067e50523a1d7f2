// The parameters of the backward kernel: tensors, the tile map by columns, the order of work. Plain data for
// host and device code.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/pass_ctas.h"

namespace longspan::sm90 {

// A gradient: [tokens, heads, head_dim], strides in elements.
struct GradientView {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
};

// The state of a key tile with several items: the low half counts the items that have arrived at their end,
// the high half those whose dk and dv are in the sums.
enum PartsCount : int32_t { kPartArrived = 1, kPartAdded = 1 << 16 };

struct BackwardParams : BackwardJobs {
  CUtensorMap q, dout, k, v;

  // [heads_q, row_tiles, 2, rows]: -lse * log2(e), then delta (layout.h)
  float* stats = nullptr;
  // Sums in fp32, laid out as in layout.h.
  // [heads_q, row_tiles, rows * head_dim]; with BackwardShape::in_rows [heads_q, tokens_q, head_dim].
  float* dq = nullptr;
  // [heads_kv, key_tiles, keys * (head_dim + head_dim_v)]: dk and dv of key tiles of several items, as
  // threads hold them.
  float* dkv = nullptr;
  GradientView dq_rows, dk, dv;  // the outputs
  TensorView v_rows;             // v once more, for threads that load it themselves
  int32_t fp32_output = 0;

  // The map of the transposed mask: its row tiles are key tiles, its columns are rows of q.
  const BackwardWork* work = nullptr;         // [masks, items_per_mask]
  const BackwardKeyTile* key_tile = nullptr;  // [masks, key_tiles]; [2, key_tiles] with heads that are cut
  const TileExtent* row_tile = nullptr;       // [masks, row_tiles]
  const DeviceRun* runs = nullptr;
  const DevicePartial* partials = nullptr;
  const uint32_t* spans = nullptr;  // [layers, keys]: begin in the low half, end in the high half

  // BackwardStore::kOrdered: the turn that each tile's addition waits for, in the order of the items'
  // walks.
  const int32_t* turns = nullptr;
  // With a BackwardSchedule: the item that a stream takes next. Streams (one or two a CTA) then take no
  // items from the counter, and each head of an item has turns of its own.
  const int32_t* next_item = nullptr;
  int32_t streams = 0;  // of the schedule
  uint32_t turns_of_head = 0;
  // The turn that is next; or, with kClaimed, a DqState.
  int32_t* turn = nullptr;  // [heads_q, row_tiles, 2; in pairs 4]: for each share of a tile's dq
  // 1 for each row tile that one key tile comes to, whose CTA writes dq; null: dq is summed everywhere.
  const uint8_t* visited_once = nullptr;  // [masks, row_tiles]
  int32_t* parts = nullptr;               // [heads_kv, key_tiles, warpgroups]: a PartsCount
  int32_t descending = 0, by_rows = 0;    // as in BackwardWalk

  int32_t key_tiles = 0;
  int32_t per_head_masks = 0;             // 0: one mask for all heads
  int32_t items_per_head = 0, items = 0;  // of a KV head; of all
  int32_t items_per_mask = 0;             // in all lists
  int32_t last_list = 0;                  // where the list of the last section begins
  int32_t first_cut_head = 0;             // KV heads from here on have the second list of key tiles
  int32_t tokens_q = 0, tokens_kv = 0;

  float scale = 0;              // of the scores
  float scale_log2 = 0;         // scale * log2(e)
  int32_t* counters = nullptr;  // BackwardCounter; zeros before the launch, as are the two below

  // The passes before and after, as far as the kernel does them (planner/pass_ctas.h).
  int32_t pass_ctas = 0;        // do passes, then items; 0: separate kernels do the passes
  int32_t* prepared = nullptr;  // [sections]: preparing jobs that are done
  int32_t* added = nullptr;     // [sections]: items whose dq is complete, for each warpgroup
  CUtensorMap o;
  const float *lse = nullptr, *dlse = nullptr;  // [heads_q, tokens_q]; dlse may be null
};

}  // namespace longspan::sm90
