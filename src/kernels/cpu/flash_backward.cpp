// The backward pass of cpu-flash.
//
//   for each KV head, in parallel:      pack keys as rows and transposed, values as rows, in f32
//   for each row tile, in parallel:     for each key tile that it sees, for each panel of the tile:
//       scores [keys, lanes]     = k * q^T           probabilities p = 2^(scores - lse)
//       dprobs [keys, lanes]     = v * do^T          ds = p * (dprobs - delta), delta = rowsum(o * do) - dlse
//       dv [keys, head_dim]     += p * do            dk [keys, head_dim] += ds * q
//       dq^T [head_dim, lanes]  += k^T * ds
//
// These are the five products that the FLOP count credits. dq belongs to the row tile. dk and dv are shared
// by all row tiles that see the key tile, and the result must not depend on the order of additions. So each
// key tile accepts contributions in the order of descending row tiles, and a thread that arrives early waits.
// Row tiles also start in descending order, so the tile that a thread waits for is always in progress. After
// the first tile the threads follow each other through the key tiles and seldom wait.
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <numbers>

#include "attention/sinks.h"
#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/flash_plan.h"

namespace longspan {

void FlashPlan::backward(const BackwardArgs& args, Stream) {
  LONGSPAN_CHECK(thread_count() <= threads_, "planned for {} threads, but there are {}", threads_,
                 thread_count());
  const Workspace workspace = carve(Direction::kBackward, args.workspace);
  const int64_t d = problem_.head_dim, e = problem_.dim_v(), tiles = kv_tiles();
  const int64_t tile_size = FlashTiling::kKeys * d, tile_size_v = FlashTiling::kKeys * e;
  for_each_round([&](int64_t first, int64_t heads) {
    parallel_for(heads * tiles, [&](int64_t index, int) {
      const int64_t h = index / tiles, tile = index % tiles;
      const PackedHead& packed = workspace.heads[h];
      float* k = packed.k + tile * tile_size;
      load_keys(args.k, tile, first + h, k);
      load_keys(args.v, tile, first + h, packed.v + tile * tile_size_v);
      transpose(k, d, FlashTiling::kKeys, static_cast<int32_t>(d), packed.k_t + tile * tile_size,
                FlashTiling::kKeys);
      std::memset(packed.dk + tile * tile_size, 0, tile_size * sizeof(float));
      std::memset(packed.dv + tile * tile_size_v, 0, tile_size_v * sizeof(float));
      reset(*new (workspace.turns + index) Turn, transposed_of(first + h), tile);
    });
    const int64_t row_tiles = map_of(first).row_tiles();
    parallel_for(heads * row_tiles, [&](int64_t index, int thread) {
      const int64_t h = index % heads;
      for (int64_t chunk = 0; chunk < problem_.group_size(); chunk += tiling_.heads) {
        backward_tile(args, workspace.heads[h], workspace.threads[thread], workspace.turns + h * tiles,
                      first + h, (first + h) * problem_.group_size() + chunk, row_tiles - 1 - index / heads);
      }
    });
    parallel_for(heads * tiles, [&](int64_t index, int) {
      const int64_t h = index / tiles, tile = index % tiles;
      const PackedHead& packed = workspace.heads[h];
      for (int64_t j = 0; j < keys_of(tile); ++j) {
        const int64_t token = tile * FlashTiling::kKeys + j;
        // dk was computed from q times scale * log2(e): undo the log2(e).
        store_elements(packed.dk + token * d, d, std::numbers::ln2_v<float>,
                       args.dk.row_address(token, first + h), args.dk.dtype);
        store_elements(packed.dv + token * e, e, 1.0f, args.dv.row_address(token, first + h), args.dv.dtype);
      }
    });
  });
  finish_sinks(args, cpu_device(), Stream{});
}

void FlashPlan::reset(Turn& turn, const TileMap& transposed, int64_t kv_tile) const {
  const std::span<const Run> runs = transposed.runs_of(kv_tile);
  turn.run = static_cast<int64_t>(runs.size()) - 1;
  turn.offset = runs.empty() ? 0 : runs.back().count() - 1;
  turn.row_tile.store(runs.empty() ? -1 : runs.back().tile + turn.offset, std::memory_order_relaxed);
}

void FlashPlan::pass_on(Turn& turn, const TileMap& transposed, int64_t kv_tile) const {
  const std::span<const Run> runs = transposed.runs_of(kv_tile);
  if (turn.offset > 0) {
    --turn.offset;
  } else if (turn.run-- > 0) {
    turn.offset = runs[turn.run].count() - 1;
  }
  turn.row_tile.store(turn.run < 0 ? -1 : runs[turn.run].tile + turn.offset, std::memory_order_release);
  turn.row_tile.notify_all();
}

void FlashPlan::backward_tile(const BackwardArgs& args, const PackedHead& packed, const Scratch& scratch,
                              Turn* turns, int64_t kv_head, int64_t first_head, int64_t row_tile) const {
  const int64_t d = problem_.head_dim, e = problem_.dim_v(), panel = tiling_.panel;
  const int64_t lanes = int64_t{tokens_of(row_tile)} * tiling_.heads;
  const bool last_chunk = (first_head + tiling_.heads) % problem_.group_size() == 0;
  const int32_t tile = static_cast<int32_t>(row_tile);
  load_tile(args.q, row_tile, first_head, scale_ * std::numbers::log2e_v<float>, scratch.rows, scratch.q_t);
  const ScoreChange change = score_change(scratch, first_head, row_tile);
  load_tile(args.dout, row_tile, first_head, 1.0f, scratch.dout, scratch.dout_t);
  load_tile(args.o, row_tile, first_head, 1.0f, scratch.out_t, nullptr);
  float *lse2 = scratch.maximum, *delta = scratch.sum;
  for (int64_t lane = 0; lane < tiling_.lanes(); ++lane) {
    const int64_t token = row_tile * tiling_.tokens + lane / tiling_.heads;
    const int64_t head = first_head + lane % tiling_.heads;
    const float lse = lane < lanes ? args.lse[head * problem_.tokens_q + token] : 0.0f;
    // A row without keys, or beyond the last token, has no probabilities: no score exceeds the largest float.
    const bool none = lane >= lanes || lse == -std::numeric_limits<float>::infinity();
    lse2[lane] = none ? std::numeric_limits<float>::max() : lse * std::numbers::log2e_v<float>;
    delta[lane] = none ? 0.0f : dot(scratch.out_t + lane * e, scratch.dout + lane * e, e);
    if (!none && args.dlse != nullptr) delta[lane] -= args.dlse[head * problem_.tokens_q + token];
  }
  float* dq_t = scratch.out_t;
  std::memset(dq_t, 0, tiling_.lanes() * d * sizeof(float));

  for_each_tile(map_of(kv_head), row_tile, scratch, [&](int64_t kv_tile, const LaneMask& mask) {
    const int64_t first_key = kv_tile * FlashTiling::kKeys;
    const float* k = packed.k + first_key * d;
    const float* k_t = packed.k_t + first_key * d;
    const float* v = packed.v + first_key * e;
    float* dk = packed.dk + first_key * d;
    float* dv = packed.dv + first_key * e;
    Turn& turn = turns[kv_tile];
    const auto wait_for_turn = [&] {
      int32_t now;
      while ((now = turn.row_tile.load(std::memory_order_acquire)) != tile) turn.row_tile.wait(now);
    };
    for (int32_t p = 0; p < tiling_.panels; ++p) {
      const KeyRange range = scratch.ranges[p];
      if (range.keys == 0) continue;
      const int64_t from = range.begin * d, from_v = range.begin * e;
      const int64_t rows = p * panel * d, rows_v = p * panel * e;
      of_keys(score_, range.keys)(k + from, scratch.q_t + rows, scratch.scores);
      if (change.any())
        change_scores(scratch.scores, range.keys, tiling_.panel,
                      static_cast<int32_t>(first_key + range.begin), change.from_lane(p * panel),
                      scratch.derivatives);
      of_keys(dprob_, range.keys)(v + from_v, scratch.dout_t + rows_v, scratch.dprobs);
      softmax_backward(scratch.scores, scratch.dprobs, range.valid, tiling_.panel, range.begin,
                       mask.from_lane(p * panel), lse2 + p * panel, delta + p * panel);
      if (scratch.derivatives != nullptr)
        multiply_elements(scratch.dprobs, scratch.derivatives, range.valid * panel);
      std::fill(scratch.scores + range.valid * panel, scratch.scores + range.keys * panel, 0.0f);
      std::fill(scratch.dprobs + range.valid * panel, scratch.dprobs + range.keys * panel, 0.0f);
      of_keys(query_gradient_, range.keys)(k_t + range.begin, scratch.dprobs, dq_t + rows);
      wait_for_turn();
      of_keys(value_gradient_, range.keys)(scratch.scores, scratch.dout + rows_v, dv + from_v);
      of_keys(key_gradient_, range.keys)(scratch.dprobs, scratch.rows + rows, dk + from);
    }
    if (last_chunk) {
      wait_for_turn();
      pass_on(turn, transposed_of(kv_head), kv_tile);
    }
  });

  for (int32_t p = 0; p < panels_of(row_tile); ++p) {
    transpose(dq_t + p * panel * d, panel, static_cast<int32_t>(d), tiling_.panel,
              scratch.rows + p * panel * d, d);
  }
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t token = row_tile * tiling_.tokens + lane / tiling_.heads;
    const int64_t head = first_head + lane % tiling_.heads;
    store_elements(scratch.rows + lane * d, d, scale_, args.dq.row_address(token, head), args.dq.dtype);
  }
}

}  // namespace longspan
