#include "kernels/sm90/forward/planner/shape.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "kernels/plan/makespan.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/block_alignment.h"
#include "mask/lowering/row_tile_costs.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::forward;

bool rows_are_alike(const Problem& problem) {
  return problem.masks->size() == 1 && problem.masks->front().bands().rows_are_alike(problem.tokens_q);
}

// Whether a mean block is so large that row tiles need not be as high as blocks.
bool blocks_are_long(const HeadMasks& masks) {
  int64_t pairs = 0, bands = 0;
  for (const Mask& mask : masks) pairs += mask.area(), bands += std::ssize(mask.bands());
  return pairs >= tuned::kLongBlock * tuned::kLongBlock * bands;
}

// When the last SM ends, in costs of row tiles. Of many items, the first ones are shared out evenly.
double end_of_work(const ForwardMap& map, const Problem& problem, const ForwardShape& shape, int64_t sms) {
  const int64_t masks = std::ssize(*problem.masks), units = problem.heads_q / shape.pack / masks;
  const int64_t rows = std::ssize(map.work), first = rows - std::min(rows, tuned::kSimulated * sms / units);
  const auto cost = [&](int64_t row) {  // the heaviest of each mask, the next one of each, ...
    const int64_t place = row % masks * map.row_tiles + row / masks;
    return static_cast<double>(map.work[place].cost + tuned::kItemSteps);
  };
  double before = 0;
  for (int64_t row = 0; row < first; ++row) before += cost(row) / static_cast<double>(first);
  plan::Makespan makespan(sms, static_cast<double>(first * units), before);
  for (int64_t row = first; row < rows; ++row) makespan.take(cost(row), units);
  return makespan.end();
}

// At head_dim 256 K and V take most of L2's rate, and pairs need half as much (forward, version 29). But a
// row tile left over may cost them another round, and in a single round they gain nothing.
bool suits_pairs(const Problem& problem, const ForwardShape& shape, const Device& device) {
  if (problem.head_dim != 256 || problem.same_launches || !rows_are_alike(problem)) return false;
  const int64_t row_tiles = ceil_div(problem.tokens_q, shape.tokens());
  const int64_t units = problem.heads_q / shape.pack, sms = std::max(device.units, 2);
  const int64_t rounds = ceil_div(row_tiles * units, sms);
  return rounds > 1 && ceil_div(ceil_div(row_tiles, 2) * units, sms / 2) <= rounds;
}

// Whether there are so many blocks or documents, and a mean one is as high as a row tile.
bool has_blocks(const HeadMasks& masks, int64_t count, int64_t tokens) {
  return std::ranges::all_of(masks, [&](const Mask& mask) {
    const int64_t groups = std::ssize(mask.bands().groups());
    return groups >= count && groups * tokens <= mask.rows();
  });
}

// The tile, and the edges of row tiles, with which the last SM ends first. Tall tiles take less time for
// their keys, but visit more keys that some rows do not see, and there are fewer items to share out.
ForwardShape choose_dense_shape(const Problem& problem, const ForwardShape& any, const Device& device) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape best;
  double least = std::numeric_limits<double>::infinity();
  thread_local ForwardMap map;
  for (const tuned::DenseTile& tile : tuned::kDenseTiles) {
    if (tile.head_dim != problem.head_dim) continue;
    ForwardShape shape = any;
    shape.warpgroups = tile.warpgroups;
    shape.columns = shape.piece = tile.columns;
    if (problem.same_launches) {  // with other masks
      best = shape;
      if (shape.tokens() <= tuned::kSameLaunchesTokens) break;
      continue;
    }
    const auto time_of = [&](RowTiles row_tiles) {
      map = lower_forward(masks, shape.tile_shape(), row_tiles, std::move(map));
      const double end = end_of_work(map, problem, shape, std::max(device.units, 1));
      return end / cost_of_full_tile(shape.columns) * tile.time;
    };
    const auto take = [&](RowTiles row_tiles, double time) {
      if (time < least) least = time, best = shape, best.row_tiles = row_tiles;
    };
    const bool blocks = has_blocks(masks, 2, shape.tokens());
    const double of_blocks = blocks ? time_of(RowTiles::kOfBlocks) : 0;
    if (blocks) take(RowTiles::kOfBlocks, of_blocks);
    if (has_blocks(masks, tuned::kManyBlocks, shape.tokens()) &&
        std::ranges::all_of(masks, &BandList::rectangular, &Mask::bands))
      take(RowTiles::kEven,  // estimated, since blocks take up to 43 times as long to lower so
           tuned::kEvenTime * of_blocks * row_tile_costs(masks, shape.tokens()).even_over_blocks());
    else if (!has_blocks(masks, tuned::kManyBlocks, int64_t{2} * shape.tokens()))
      take(RowTiles::kEven, tuned::kEvenTime * time_of(RowTiles::kEven));
  }
  if (map.bytes() > kMostKeptBytes) map = ForwardMap();
  best.paired = suits_pairs(problem, best, device);
  return best;
}

}  // namespace

ForwardShape choose_forward_shape(const Problem& problem, const Device& device) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape shape;
  shape.pack = static_cast<int>(std::gcd(problem.group_size(), tuned::kMaxPack));
  const bool plain = problem.same_launches || is_large(problem);
  int64_t block = plain ? 0 : block_alignment(masks, h200::kFinestBlock, h200::kLargestBlock);
  if (problem.head_dim == 64 && (blocks_are_long(masks) || block % (kMostTileRows / shape.pack) == 0))
    block = 0;
  if (block < h200::kFinestBlock) return choose_dense_shape(problem, shape, device);
  if (block == h200::kLargestBlock) {
    shape.pack = 1;  // row tiles as high as blocks: the fewest entries
  } else {
    shape.piece = 64;
    shape.pack = std::min(shape.pack, 2);
    shape.streams = shape.pack == 2 ? 1 : 2;  // row tiles of 64 tokens: of two heads, or of one
  }
  return shape;
}

WorkOrder choose_work_order(const Problem& problem, const ForwardShape& shape, const ForwardMap& map,
                            const Device& device) {
  WorkOrder order;
  order.row_tiles = map.row_tiles;
  order.units = static_cast<int32_t>(problem.heads_q / shape.pack);

  // As many KV heads as divide all into equal sections and whose K and V fit in a share of L2. Heavy row
  // tiles of several heads come before light ones. If all are alike, that has no use: one head, or all if
  // they are short.
  const int64_t head_bytes =
      problem.tokens_kv * (problem.head_dim + problem.dim_v()) * static_cast<int64_t>(size_of(problem.dtype));
  const bool alike = rows_are_alike(problem);
  const double share = alike ? tuned::kSectionL2ShareOfAlike : tuned::kSectionL2Share;
  const int64_t fit = static_cast<int64_t>(share * static_cast<double>(device.cache_bytes)) / head_bytes;
  int64_t heads = shape.section_heads;
  if (heads == 0) heads = alike && fit < problem.heads_kv ? 1 : fit;
  heads = std::clamp<int64_t>(heads, 1, problem.heads_kv);
  while (shape.section_heads == 0 && problem.heads_kv % heads != 0) --heads;
  const int64_t sections = ceil_div(problem.heads_kv, heads);
  order.section_units =
      static_cast<int32_t>(ceil_div(problem.heads_kv, sections) * (problem.group_size() / shape.pack));

  // A row tile that takes as long as a section would delay the end if the last section began with it. So it
  // comes first, for as many last sections as together take no longer.
  if (shape.heavy_first && !alike && sections > 1 && problem.masks->size() == 1) {
    int64_t all = 0;
    for (const MapRow& row : map.work) all += row.cost;
    const int64_t sms = std::max(device.units, 1), of_section = all * order.units / sms / sections;
    const int64_t heavy = of_section * tuned::kHeavyNumerator / tuned::kHeavyDenominator;
    const auto light = std::ranges::find_if(map.work, [&](const MapRow& row) { return row.cost <= heavy; });
    order.heavy_rows = static_cast<int32_t>(light - map.work.begin());
    if (order.heavy_rows > 0) {
      const int64_t needed = std::min<int64_t>(ceil_div(map.work.front().cost * sms, all), order.units);
      order.late_units = static_cast<int32_t>(order.units - (order.units - needed) / order.section_units *
                                                                order.section_units);
    }
  }
  return order;
}

}  // namespace longspan::sm90
