#include "attention/kernel_cost.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/ceil_div.h"
#include "mask/band_list.h"

namespace longspan {
namespace {

constexpr double kHeadDim = 128;  // the head dimension of the costs

// The keys that rows [begin, end) of a band see, as one range.
Range keys_of_rows(const Band& band, int64_t begin, int64_t end) {
  Range keys = band.k;
  if (band.lo != kUnboundedBelow) keys.begin = std::max(keys.begin, begin + band.lo);
  if (band.hi != kUnboundedAbove) keys.end = std::min(keys.end, end - 1 + band.hi + 1);
  return keys;
}

struct MaskTiles {
  double tiles = 0, row_tiles = 0, longest = 0;
};

// Adds up the tiles of one mask by row tiles of `rows` tokens. Keys of two bands that lie in the same tile
// are counted twice, which only short bands show.
MaskTiles tiles_of(const Mask& mask, int64_t rows, int64_t tile_keys) {
  std::vector<int32_t> of_row_tile(static_cast<size_t>(ceil_div(mask.rows(), rows)));
  const int64_t most = ceil_div(mask.columns(), tile_keys);
  for (const Band band : mask.bands()) {
    for (int64_t tile = band.q.begin / rows; tile * rows < band.q.end; ++tile) {
      const int64_t begin = std::max(tile * rows, band.q.begin);
      const int64_t end = std::min((tile + 1) * rows, band.q.end);
      const Range keys = keys_of_rows(band, begin, end);
      if (keys.empty()) continue;
      int32_t& sum = of_row_tile[static_cast<size_t>(tile)];
      sum = static_cast<int32_t>(std::min<int64_t>(most, sum + ceil_div(keys.size(), tile_keys)));
    }
  }
  MaskTiles total;
  for (const int32_t tiles : of_row_tile) {
    total.tiles += tiles;
    total.row_tiles += tiles > 0 ? 1 : 0;
    total.longest = std::max<double>(total.longest, tiles);
  }
  return total;
}

}  // namespace

TileWork tile_work(const HeadMasks& masks, int64_t heads_q, int64_t heads_kv, const KernelPassCost& pass) {
  const int64_t pack = std::gcd(heads_q / heads_kv, pass.most_pack);
  const int64_t tokens = std::max<int64_t>(1, pass.tile_rows / pack);
  const int64_t packs = heads_q / pack;
  const double heads_of_mask = static_cast<double>(packs) / static_cast<double>(masks.size());
  TileWork work;
  for (const Mask& mask : masks) {
    const MaskTiles of_mask = tiles_of(mask, tokens, pass.tile_keys);
    work.tiles += of_mask.tiles * heads_of_mask;
    work.row_tiles += of_mask.row_tiles * heads_of_mask;
    work.longest = std::max(work.longest, of_mask.longest);
  }
  work.key_tiles =
      static_cast<double>(ceil_div(masks.front().columns(), pass.tile_keys)) * static_cast<double>(heads_kv);
  return work;
}

double seconds_of(const TileWork& work, const KernelPassCost& pass, int64_t units, int64_t head_dim) {
  if (work.tiles == 0) return pass.launch_s;
  const double longest_s = work.longest * pass.tile_s + pass.row_tile_s;
  const double all_s =
      work.tiles * pass.tile_s + work.row_tiles * pass.row_tile_s + work.key_tiles * pass.key_tile_s;
  const double busy_s = std::max(all_s / static_cast<double>(units), longest_s) + pass.tail * longest_s;
  return pass.launch_s + busy_s * static_cast<double>(head_dim) / kHeadDim;
}

double estimate_s(const Problem& problem, Direction direction, const KernelCost& cost) {
  const KernelPassCost& pass = cost.of(direction);
  return seconds_of(tile_work(*problem.masks, problem.heads_q, problem.heads_kv, pass), pass, cost.units,
                    (problem.head_dim + problem.dim_v()) / 2);
}

}  // namespace longspan
