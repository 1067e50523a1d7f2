#include "kernels/sm90/forward/planner/shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ceil_div.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/block_alignment.h"
#include "mask/lowering/row_tile_costs.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::forward;

// Whether row tiles begin at edges of blocks and documents. A row tile in two of them visits the keys of
// both. If blocks see most keys that adds little, and full row tiles are better.
bool follows_blocks(const HeadMasks& masks, const ForwardShape& shape) {
  const int64_t tokens = shape.tokens();
  RowTileCosts costs;
  for (const Mask& mask : masks) {
    const bool blocks = mask.bands().rectangular();
    const int64_t groups = std::ssize(mask.bands().groups());
    const int64_t least = (blocks ? 1 : tuned::kEdgesMinTiles) * tokens;
    if (groups < tuned::kEdgesMinRuns || groups * least > mask.rows()) return false;
    if (!blocks) continue;
    const RowTileCosts of_mask = row_tile_costs(mask, tokens);
    costs.even += of_mask.even, costs.of_blocks += of_mask.of_blocks;
  }
  return costs.even >= tuned::kEdgesMinKeysRatio * costs.of_blocks;
}

// Whether a mean block is so large that row tiles need not be as high as blocks.
bool blocks_are_long(const HeadMasks& masks) {
  int64_t pairs = 0, bands = 0;
  for (const Mask& mask : masks) pairs += mask.area(), bands += std::ssize(mask.bands());
  return pairs >= tuned::kLongBlock * tuned::kLongBlock * bands;
}

// Whether all rows of one mask see the same keys.
bool rows_are_alike(const HeadMasks& masks) {
  const BandList& bands = masks.front().bands();
  return masks.size() == 1 && bands.rectangular() && bands.groups().size() == 1;
}

const tuned::TallTiles& tall_of(const Problem& problem) {
  if (problem.head_dim == 256) return tuned::kTallOf256;
  return problem.head_dim == 64 ? tuned::kTallOf64 : tuned::kTall;
}
ForwardShape tall_tiles(const Problem& problem, ForwardShape shape) {
  shape.warpgroups = tall_of(problem).warpgroups;
  shape.columns = shape.piece = tall_of(problem).columns;
  return shape;
}

// The time of masks of rectangles, in tiles of each CTA. CTAs wait for the last one: for half an item in the
// mean, or, if all items are alike, while some have one more than others.
double time_of_rectangles(const Problem& problem, const ForwardShape& shape, int units) {
  const HeadMasks& masks = *problem.masks;
  double keys = 0;
  for (const Mask& mask : masks)
    keys += row_tile_costs(mask, shape.tokens()).least() / static_cast<double>(masks.size());
  const int64_t row_tiles = ceil_div(problem.tokens_q, shape.tokens()), heads = problem.heads_q / shape.pack;
  const double items = static_cast<double>(row_tiles * heads) / std::max(units, 1);
  const double rounds = rows_are_alike(masks) ? std::ceil(items) : items + 0.5;
  return rounds * keys / static_cast<double>(row_tiles * shape.columns);
}

// Whether a dense mask has tall tiles. They take less time for their keys, but the more tokens a row tile
// has, the more keys it visits that some of them do not see.
bool tall_tiles_pay(const Problem& problem, const ForwardShape& shape, int units) {
  const ForwardShape tall = tall_tiles(problem, shape);
  const HeadMasks& masks = *problem.masks;
  if (!problem.same_launches && std::ranges::all_of(masks, &BandList::rectangular, &Mask::bands))
    return time_of_rectangles(problem, tall, units) <=
           time_of_rectangles(problem, shape, units) * tall_of(problem).tile_time;
  const bool few_tokens = tall.tokens() <= tall_of(problem).tokens;
  if (problem.same_launches || few_tokens) return few_tokens;
  const auto is_long = [run = tall_of(problem).run](const Mask& mask) {
    return mask.rows() >= run * std::ssize(mask.bands().groups()) && mask.area() >= run * mask.rows();
  };
  return std::ranges::all_of(masks, is_long);
}

}  // namespace

ForwardShape choose_forward_shape(const Problem& problem, const Device& device) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape shape;
  shape.pack = static_cast<int>(std::gcd(problem.group_size(), tuned::kMaxPack));
  int64_t block = 0;
  if (!problem.same_launches && !is_large(problem))
    block = block_alignment(masks, h200::kFinestBlock, h200::kLargestBlock);
  const bool of_64 = problem.head_dim == 64;
  if (of_64 && (blocks_are_long(masks) || block % tall_tiles(problem, shape).tokens() == 0)) block = 0;
  if (block < h200::kFinestBlock) {
    if (of_64) shape.warpgroups = 3;
    if (is_large(problem) || tall_tiles_pay(problem, shape, device.units)) shape = tall_tiles(problem, shape);
    if (!problem.same_launches && follows_blocks(masks, shape)) shape.row_tiles = RowTiles::kOfBlocks;
  } else if (block == h200::kLargestBlock) {
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
  const bool alike = rows_are_alike(*problem.masks);
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
