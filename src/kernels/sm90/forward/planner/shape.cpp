#include "kernels/sm90/forward/planner/shape.h"

#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/block_alignment.h"
#include "mask/lowering/row_tile_costs.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::forward;

// Whether row tiles begin at edges of blocks and documents. A row tile in two blocks visits the keys of both.
// If blocks see most keys that adds little, and full row tiles are better. A row tile in two documents costs
// as much as two row tiles, so edges only speed up planning, and only if documents are long. In row tiles of
// three warpgroups more rows wait for a tile that they do not see.
bool follows_blocks(const HeadMasks& masks, const ForwardShape& shape) {
  const int64_t tokens = shape.tokens();
  const int64_t of_document =
      shape.warpgroups == 3 ? tuned::kEdgesMinTilesOfHighDocument : tuned::kEdgesMinTilesOfDocument;
  RowTileCosts costs;
  for (const Mask& mask : masks) {
    const bool blocks = mask.bands().rectangular();
    const int64_t groups = std::ssize(mask.bands().groups());
    const int64_t tiles = blocks ? tuned::kEdgesMinTilesOfBlock : of_document;
    if (groups < tuned::kEdgesMinRuns || groups * tiles * tokens > mask.rows()) return false;
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

// Whether wide tiles take less time. All row tiles of a window see as many keys, but for its ends.
bool wide_tiles_pay(const Problem& problem, int64_t tokens) {
  if (problem.head_dim != 128 || problem.tokens_kv < tuned::kWideMinKeys ||
      problem.area() < tuned::kWideMinKeysOfRow * problem.tokens_q * problem.heads_q)
    return false;
  const BandList& bands = problem.masks->front().bands();
  if (problem.masks->size() > 1 || bands.size() > 1 || !bands[0].bounded()) return true;
  const auto tiles_of = [&](int64_t columns) {
    const int64_t halves = ceil_div(2 * (bands[0].hi - bands[0].lo + tokens), columns), whole = halves / 2;
    return static_cast<double>(whole) + (halves % 2 > 0 ? tuned::kHalfTileTime : 0);
  };
  return tiles_of(tuned::kWideColumns) <= tuned::kTileTime * tiles_of(tuned::kColumns);
}

}  // namespace

ForwardShape choose_forward_shape(const Problem& problem) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape shape;
  shape.pack = static_cast<int>(std::gcd(problem.group_size(), tuned::kMaxPack));
  if (is_large(problem)) {
    shape.columns = shape.piece = problem.head_dim == 256 ? tuned::kColumnsOf256 : tuned::kColumns;
    if (!problem.same_launches && follows_blocks(masks, shape)) shape.row_tiles = RowTiles::kOfBlocks;
    return shape;
  }
  const int64_t block =
      problem.same_launches ? 0 : block_alignment(masks, h200::kFinestBlock, h200::kLargestBlock);
  const bool three = problem.head_dim == tuned::kThreeWarpgroupsHeadDim;
  const bool dense = block < h200::kFinestBlock || (three && blocks_are_long(masks));
  if (three && dense) shape.warpgroups = 3;
  if (problem.same_launches) return shape;

  if (dense) {
    const bool wide = wide_tiles_pay(problem, shape.tokens());
    shape.columns = shape.piece = wide ? tuned::kWideColumns : tuned::kColumns;
    if (follows_blocks(masks, shape)) shape.row_tiles = RowTiles::kOfBlocks;
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
  // tiles of several heads come before light ones; if all are alike, that has no use.
  const int64_t head_bytes =
      problem.tokens_kv * (problem.head_dim + problem.dim_v()) * static_cast<int64_t>(size_of(problem.dtype));
  const double cache_bytes = tuned::kSectionL2Share * static_cast<double>(device.cache_bytes);
  const bool alike = rows_are_alike(*problem.masks);
  int64_t heads = shape.section_heads > 0 ? shape.section_heads
                  : alike                 ? tuned::kSectionHeadsOfAlike
                                          : static_cast<int64_t>(cache_bytes) / head_bytes;
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
