// The forward pass of cpu-flash.
//
//   for each KV head, in parallel:      pack keys as rows, values transposed, in f32
//   for each row tile, in parallel:     for each key tile that it sees, for each panel of the tile:
//       scores [keys, lanes]    = k [keys, head_dim] * q^T [head_dim, lanes]
//       probabilities           = 2^(scores - maximum), online; sum
//       out^T [head_dim, lanes] += v^T [head_dim, keys] * probabilities [keys, lanes]
//
// A panel's q^T, scores and out^T move between the L1 and L2 caches; the key tile stays in L2 for all panels.
// Row tiles are independent, so threads may process them in any order.
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "attention/sinks.h"
#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/flash_plan.h"

namespace longspan {

void FlashPlan::forward(const ForwardArgs& args, Stream) {
  LONGSPAN_CHECK(thread_count() <= threads_, "planned for {} threads, but there are {}", threads_,
                 thread_count());
  const Workspace workspace = carve(Direction::kForward, args.workspace);
  const int64_t d = problem_.head_dim, e = problem_.dim_v(), keys = FlashTiling::kKeys;
  for_each_round([&](int64_t first, int64_t heads) {
    parallel_for(heads * kv_tiles(), [&](int64_t index, int thread) {
      const int64_t h = index / kv_tiles(), tile = index % kv_tiles();
      const PackedHead& packed = workspace.heads[h];
      load_keys(args.k, tile, first + h, packed.k + tile * keys * d);
      float* rows = workspace.threads[thread].rows;
      load_keys(args.v, tile, first + h, rows);
      transpose(rows, e, FlashTiling::kKeys, static_cast<int32_t>(e), packed.v_t + tile * keys * e,
                FlashTiling::kKeys);
    });
    parallel_for(heads * map_of(first).row_tiles(), [&](int64_t index, int thread) {
      const int64_t h = index % heads;
      const int64_t row_tile = map_of(first + h).order[index / heads];  // heaviest first
      for (int64_t chunk = 0; chunk < problem_.group_size(); chunk += tiling_.heads) {
        forward_tile(args, workspace.heads[h], workspace.threads[thread], first + h,
                     (first + h) * problem_.group_size() + chunk, row_tile);
      }
    });
  });
  finish_sinks(args, cpu_device(), Stream{});
}

void FlashPlan::forward_tile(const ForwardArgs& args, const PackedHead& packed, const Scratch& scratch,
                             int64_t kv_head, int64_t first_head, int64_t row_tile) const {
  const int64_t d = problem_.head_dim, e = problem_.dim_v(), panel = tiling_.panel;
  load_tile(args.q, row_tile, first_head, scale_ * std::numbers::log2e_v<float>, scratch.rows, scratch.q_t);
  const ScoreChange change = score_change(scratch, first_head, row_tile);
  std::memset(scratch.out_t, 0, tiling_.lanes() * e * sizeof(float));
  std::fill_n(scratch.maximum, tiling_.lanes(), -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sum, tiling_.lanes(), 0.0f);

  for_each_tile(map_of(kv_head), row_tile, scratch, [&](int64_t kv_tile, const LaneMask& mask) {
    const float* k = packed.k + kv_tile * FlashTiling::kKeys * d;
    const float* v_t = packed.v_t + kv_tile * FlashTiling::kKeys * e;
    const auto first_key = static_cast<int32_t>(kv_tile * FlashTiling::kKeys);
    for (int32_t p = 0; p < tiling_.panels; ++p) {
      const KeyRange range = scratch.ranges[p];
      if (range.keys == 0) continue;
      of_keys(score_, range.keys)(k + range.begin * d, scratch.q_t + p * panel * d, scratch.scores);
      if (change.any())
        change_scores(scratch.scores, range.keys, tiling_.panel, first_key + range.begin,
                      change.from_lane(p * panel), nullptr);
      softmax_forward(scratch.scores, range.valid, tiling_.panel, range.begin, mask.from_lane(p * panel),
                      {scratch.maximum + p * panel, scratch.sum + p * panel, scratch.out_t + p * panel * e,
                       static_cast<int32_t>(e)});
      // Keys past the end have probability 0.
      std::fill(scratch.scores + range.valid * panel, scratch.scores + range.keys * panel, 0.0f);
      of_keys(output_, range.keys)(v_t + range.begin, scratch.scores, scratch.out_t + p * panel * e);
    }
  });

  for (int32_t p = 0; p < panels_of(row_tile); ++p) {
    transpose(scratch.out_t + p * panel * e, panel, static_cast<int32_t>(e), tiling_.panel,
              scratch.rows + p * panel * e, e);
  }
  for (int64_t lane = 0; lane < int64_t{tokens_of(row_tile)} * tiling_.heads; ++lane) {
    const int64_t token = row_tile * tiling_.tokens + lane / tiling_.heads;
    const int64_t head = first_head + lane % tiling_.heads;
    const float sum = scratch.sum[lane];
    const bool sees_none = sum == 0;
    store_elements(scratch.rows + lane * e, e, sees_none ? 0.0f : 1.0f / sum, args.o.row_address(token, head),
                   args.o.dtype);
    args.lse[head * problem_.tokens_q + token] =
        sees_none ? -std::numeric_limits<float>::infinity()
                  : static_cast<float>((scratch.maximum[lane] + std::log2(double{sum})) * std::numbers::ln2);
  }
}

}  // namespace longspan
