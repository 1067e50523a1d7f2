// What the backward kernel reads besides tensors: the tile map by columns and the order of work. Plain data,
// shared by host and device code.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/jobs.h"

namespace longspan::sm90 {

// Where a gradient is written: [tokens, heads, head_dim], strides in elements.
struct GradientView {
  void* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
};

// Of the items of a key tile: how many have come to their end, in the low half; and of how many dk and dv
// are in the sums, in the high half.
enum PartsCount : int32_t { kPartCame = 1, kPartAdded = 1 << 16 };

struct BackwardParams {
  CUtensorMap q, dout, k, v;

  // [heads_q, row_tiles, 2, rows]: -lse * log2(e), then delta (layout.h)
  float* stats = nullptr;
  // Sums in fp32, as layout.h has them.
  float* dq = nullptr;   // [heads_q, row_tiles, rows * head_dim]; or, BackwardShape::in_rows, [heads_q,
                         // tokens_q, head_dim], where the rows of a tile lie as [warpgroups, rows of the
                         // tile, head_dim / warpgroups]
  float* dkv = nullptr;  // [heads_kv, key_tiles, 2, keys * head_dim]: dk, dv of key tiles of several items,
                         // as threads hold them
  GradientView dk, dv;
  int32_t fp32_output = 0;

  // The map of the transposed mask: its row tiles are key tiles, its columns are rows of q.
  const BackwardWork* work = nullptr;         // [masks, items_per_mask]
  const BackwardKeyTile* key_tile = nullptr;  // [masks, key_tiles]
  const TileExtent* row_tile = nullptr;       // [masks, row_tiles]
  const DeviceRun* runs = nullptr;
  const DevicePartial* partials = nullptr;
  const uint32_t* spans = nullptr;  // [layers, keys]: begin in the low half, end in the high half

  // With BackwardStore::kOrdered: the turns for which items' tiles wait, in the order of their walks.
  const int32_t* turns = nullptr;
  // Of BackwardSchedule, if it has one: streams of items (one or two in each block) do not take these from
  // the counter, and each head of an item has turns of its own.
  const int32_t* next_item = nullptr;
  int32_t streams = 0;  // that it is for
  uint32_t turns_of_head = 0;
  // Whose turn it is; or, with kClaimed, a DqState.
  int32_t* turn = nullptr;   // [heads_q, row_tiles, 2]: of each warpgroup's half of dq
  int32_t* parts = nullptr;  // [heads_kv, key_tiles, 2]: of each warpgroup's half of dkv, PartsCount
  int32_t descending = 0, by_rows = 0;  // BackwardWalk

  // Where blocks are that go over the same rows of a head, all of them: an item begins there and comes back
  // to the rows before at its end, so that they meet the same rows at about the same time, however far they
  // have drifted apart.
  int32_t* front = nullptr;  // [heads_q, row_tiles], at a run's first tile: how far the foremost has come
  int32_t join_tiles = 0;    // of a run, with which an item begins, from which it does so; 0: none does

  int32_t key_tiles = 0, row_tiles = 0;
  int32_t per_head_masks = 0;  // 0: one mask for all heads
  int32_t group = 1;           // query heads of a KV head
  int32_t heads_kv = 0;
  int32_t section_heads = 0;  // KV heads that are worked on together, so that their rows stay in L2
  int32_t last_section = 0;   // takes all heads that are left: enough items, so that all blocks end together
  int32_t items_per_head = 0, items = 0;  // of a KV head; of all
  int32_t items_per_mask = 0;             // in all lists
  int32_t last_list = 0;                  // where the list begins that the last section uses
  int32_t tokens_q = 0, tokens_kv = 0;

  float scale = 0;              // of the scores
  float scale_log2 = 0;         // scale * log2(e)
  int32_t* counters = nullptr;  // BackwardCounter; the first two are zero between launches

  // Most of the passes before and after, where the kernel does them (planner/jobs.h).
  int32_t pass_ctas = 0;        // that do them, and then items; 0: the passes are kernels of their own
  int32_t* prepared = nullptr;  // [sections]: jobs done before; zero before the launch, as the next
  int32_t* added = nullptr;     // [sections]: items whose dq is complete, of each warpgroup
  CUtensorMap o;
  const float* lse = nullptr;  // [heads_q, tokens_q]
  GradientView dq_rows;        // where dq goes

  constexpr BackwardJobs jobs() const { return {section_heads, last_section, heads_kv, group, row_tiles}; }
};

}  // namespace longspan::sm90
