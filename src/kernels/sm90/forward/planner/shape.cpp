#include "kernels/sm90/forward/planner/shape.h"

#include <algorithm>
#include <numeric>

#include "kernels/sm90/block_alignment.h"
#include "kernels/sm90/forward/planner/row_tile_costs.h"
#include "kernels/sm90/forward/planner/split.h"
#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::forward;

// Whether row tiles begin at edges of blocks and documents. A row tile in two blocks visits the keys of both.
// If blocks see most keys that adds little, and full row tiles are better. A row tile in two documents costs
// as much as two row tiles, so edges only speed up planning, and only if documents are long.
bool follows_blocks(const HeadMasks& masks, int64_t tokens) {
  const bool long_enough = std::all_of(masks.begin(), masks.end(), [&](const Mask& mask) {
    const auto groups = static_cast<int64_t>(mask.bands().groups().size());
    const int64_t tiles =
        mask.bands().rectangular() ? tuned::kEdgesMinTilesOfBlock : tuned::kEdgesMinTilesOfDocument;
    return groups >= tuned::kEdgesMinRuns && groups * tiles * tokens <= mask.rows();
  });
  if (!long_enough) return false;
  RowTileCosts costs;
  for (const Mask& mask : masks) {
    if (!mask.bands().rectangular()) continue;
    const RowTileCosts of_mask = row_tile_costs(mask, tokens);
    costs.even += of_mask.even, costs.of_blocks += of_mask.of_blocks;
  }
  return costs.even >= tuned::kEdgesMinKeysRatio * costs.of_blocks;
}

// Whether all rows see the same contiguous keys, so that all row tiles have the same full tiles.
bool rows_are_alike(const HeadMasks& masks) {
  if (masks.size() != 1 || masks.front().bands().size() != 1) return false;
  const Band band = *masks.front().bands().begin();
  return band.rectangular() && band.q.size() == masks.front().rows();
}

// Whether CTA pairs with a split last wave are faster. In pairs, a tile takes 3 to 4 % more cycles at a clock
// that is 3 to 4 % higher, since less is loaded. The gain is that of the split.
bool pays_in_pairs(const Problem& problem, const ForwardShape& shape, const Device& device) {
  const int64_t pairs = device.units / 2, tokens = int64_t{2} * shape.tokens();
  if (problem.head_dim != 128 || tokens > kMostTileRows || pairs == 0) return false;
  // Partial results are not split.
  if (problem.fp32_output && !problem.own_rows) return false;
  if (!rows_are_alike(*problem.masks)) return false;
  const int64_t keys = problem.masks->front().area() / problem.masks->front().rows();
  const int64_t items = (problem.tokens_q + tokens - 1) / tokens * (problem.heads_q / shape.pack);
  return keys >= tuned::kPairMinKeys && keys <= tuned::kPairMaxKeys &&
         items >= tuned::kPairMinItems * pairs &&
         time_saved_by_split(items, (keys + tuned::kColumns - 1) / tuned::kColumns, pairs) >=
             tuned::kPairMinSaving;
}

}  // namespace

ForwardShape choose_forward_shape(const Problem& problem, const Device& device) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape shape;
  shape.pack = static_cast<int>(std::gcd(problem.group_size(), tuned::kMaxPack));
  if (is_large(problem)) {
    shape.columns = shape.piece = problem.head_dim == 256 ? tuned::kColumnsOf256 : tuned::kColumns;
    if (!problem.same_launches && follows_blocks(masks, shape.tokens()))
      shape.row_tiles = RowTiles::kOfBlocks;
    return shape;
  }
  const bool three = problem.head_dim == tuned::kThreeWarpgroupsHeadDim;
  const int64_t block = problem.same_launches ? 0 : block_alignment(masks);
  if (three && block < kFinestBlock) shape.warpgroups = 3;
  if (problem.same_launches) return shape;

  if (block == kLargestBlock) {
    shape.columns = shape.piece = 128;
    shape.pack = 1;  // row tiles as high as blocks: the fewest entries
  } else if (block == kFinestBlock) {
    shape.columns = 128;
    shape.piece = 64;
    shape.pack = std::min(shape.pack, 2);
    shape.streams = shape.pack == 2 ? 1 : 2;  // row tiles of 64 tokens: of two heads, or of one
  } else {
    const int64_t rows = problem.tokens_q * problem.heads_q;
    const bool wide = problem.head_dim == 128 && problem.tokens_kv >= tuned::kWideMinKeys &&
                      problem.area() >= tuned::kWideMinKeysOfRow * rows;
    shape.columns = shape.piece = wide ? tuned::kWideColumns : tuned::kColumns;
    if (follows_blocks(masks, shape.tokens())) shape.row_tiles = RowTiles::kOfBlocks;
    if (pays_in_pairs(problem, shape, device)) {
      shape.columns = shape.piece = tuned::kColumns;
      shape.paired = true;
    }
  }
  return shape;
}

WorkOrder choose_work_order(const Problem& problem, const ForwardShape& shape, const ForwardMap& map,
                            const Device& device) {
  WorkOrder order;
  order.row_tiles = map.row_tiles;
  order.units = static_cast<int32_t>(problem.heads_q / shape.pack);

  // The K and V of a section of heads fit in a share of L2.
  const int64_t head_bytes =
      problem.tokens_kv * (problem.head_dim + problem.dim_v()) * static_cast<int64_t>(size_of(problem.dtype));
  const auto fitting =
      std::max<int64_t>(static_cast<int64_t>(device.cache_bytes / tuned::kSectionL2Divisor) / head_bytes, 1);
  const int64_t sections = (problem.heads_kv + fitting - 1) / fitting;
  order.section_units = static_cast<int32_t>((problem.heads_kv + sections - 1) / sections *
                                             (problem.group_size() / shape.pack));

  // A row tile that takes as long as a section would delay the end if the last section began with it.
  if (sections > 1 && problem.masks->size() == 1) {
    int64_t all = 0;
    for (const MapRow& row : map.work) all += row.cost;
    const int64_t of_section = all * order.units / std::max(device.units, 1) / sections;
    const auto light = std::find_if(map.work.begin(), map.work.end(), [&](const MapRow& row) {
      return row.cost <= of_section * tuned::kHeavyNumerator / tuned::kHeavyDenominator;
    });
    order.heavy_rows = static_cast<int32_t>(light - map.work.begin());
  }
  return order;
}

}  // namespace longspan::sm90
