#include "kernels/sm90/backward/planner/grid.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/lowering/lower.h"
#include "mask/sort_order.h"
#include "mask/transpose.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;

constexpr size_t kMostBands = 1 << 17;  // of a mask that is cut: with more, planning would take too long

// The tokens [0, tokens) in segments; tiles begin anew with each segment.
class Cuts {
 public:
  Cuts(std::vector<int64_t> begins, int64_t tokens, int64_t size)
      : begins_(std::move(begins)), tokens_(tokens) {
    begins_.push_back(0);
    std::ranges::sort(begins_);
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
    if (begins_.back() >= tokens && begins_.size() > 1) begins_.pop_back();
    int64_t tiles = 0;
    for (size_t i = 0; i < begins_.size(); ++i) {
      shifts_.push_back(tiles * size - begins_[i]);
      for (int64_t first = begins_[i]; first < end(i); first += size, ++tiles)
        tiles_.push_back({static_cast<int32_t>(first), static_cast<int32_t>(std::min(size, end(i) - first))});
    }
  }

  int64_t end(size_t segment) const { return segment + 1 < begins_.size() ? begins_[segment + 1] : tokens_; }
  // The length if each segment but the last is padded to whole tiles.
  int64_t padded() const { return tokens_ + shifts_.back(); }
  const std::vector<TileExtent>& tiles() const { return tiles_; }

  // Calls visit(range in the segment, its shift to padded positions) for each segment that `range` meets.
  template <class Visit>
  void for_each_part(const Range& range, const Visit& visit) const {
    size_t i = std::ranges::upper_bound(begins_, range.begin) - begins_.begin() - 1;
    for (; i < begins_.size() && begins_[i] < range.end; ++i)
      visit(intersection(range, {begins_[i], end(i)}), shifts_[i]);
  }

 private:
  std::vector<int64_t> begins_, shifts_;
  int64_t tokens_;
  std::vector<TileExtent> tiles_;
};

// Both ends of each long enough band, in one dimension.
std::vector<int64_t> boundaries(const Mask& mask, Range Band::*dimension) {
  std::vector<int64_t> result;
  for (const Band& band : mask.bands())
    if (const Range range = band.*dimension; range.size() >= tuned::kEdgeMinTokens)
      result.insert(result.end(), {range.begin, range.end});
  return result;
}

// The bands of the transposed mask at padded positions, by their first rows; none if there are too many.
std::optional<BandList> pad(const Mask& mask, const Cuts& rows, const Cuts& keys) {
  std::vector<Band> bands;
  size_t parts = 0;
  for (const Band& band : mask.bands())
    rows.for_each_part(band.q, [&](const Range& q, int64_t row_shift) {
      keys.for_each_part(band.k, [&](const Range& k, int64_t key_shift) {
        if (++parts > kMostBands) return;
        Band part = Band{q, k, band.lo, band.hi}.normalized();
        if (part.q.empty()) return;
        part.q = {part.q.begin + row_shift, part.q.end + row_shift};
        part.k = {part.k.begin + key_shift, part.k.end + key_shift};
        if (part.lo != kUnboundedBelow) part.lo += key_shift - row_shift;
        if (part.hi != kUnboundedAbove) part.hi += key_shift - row_shift;
        bands.push_back(flipped(part));
      });
    });
  if (parts > kMostBands) return std::nullopt;
  if (!std::ranges::is_sorted(bands, sorts_before)) std::ranges::sort(bands, sorts_before);
  BandList list;
  list.reserve(bands.size());
  for (const Band& band : bands) list.append(band);
  return list;
}

double cost_of(const std::vector<TileSketch>& sketches) {
  double cost = 0;
  for (const TileSketch& sketch : sketches)
    for (const Run& run : sketch.map.runs) cost += run.full() ? run.code : 1 + tuned::kPartialTileCost;
  return cost;
}

// [masks, most tiles of a mask]: the missing ones have no tokens.
std::vector<TileExtent> table_of(const std::vector<Cuts>& cuts) {
  size_t most = 0;
  for (const Cuts& of_mask : cuts) most = std::max(most, of_mask.tiles().size());
  std::vector<TileExtent> table;
  if (most == 0) return table;
  for (const Cuts& of_mask : cuts) {
    table.insert(table.end(), of_mask.tiles().begin(), of_mask.tiles().end());
    table.resize((table.size() + most - 1) / most * most);
  }
  return table;
}

// Tiles that begin at edges of bands.
struct CutGrid {
  std::vector<Cuts> rows, keys;
  std::vector<TileSketch> sketches;
};

// None if the mask has too many bands. Unless `aligned`, a low row tile comes first, not last, where later
// rows see more: it costs as many keys as a whole one.
std::optional<CutGrid> cut(const HeadMasks& masks, TileShape shape, bool aligned) {
  CutGrid grid;
  int64_t row_tiles = 0, key_tiles = 0;
  for (const Mask& mask : masks) {
    if (mask.bands().size() > kMostBands) return std::nullopt;
    std::vector<int64_t> rows = {mask.bands().later_rows_see_more() ? mask.rows() % shape.columns : 0}, keys;
    if (aligned) rows = boundaries(mask, &Band::q), keys = boundaries(mask, &Band::k);
    grid.rows.emplace_back(std::move(rows), mask.rows(), shape.columns);
    grid.keys.emplace_back(std::move(keys), mask.columns(), shape.rows);
    row_tiles = std::max(row_tiles, static_cast<int64_t>(grid.rows.back().tiles().size()));
    key_tiles = std::max(key_tiles, static_cast<int64_t>(grid.keys.back().tiles().size()));
  }
  grid.sketches.resize(masks.size());
  std::atomic<bool> too_many = false;
  const bool one = masks.size() == 1;  // several masks are padded to the same number of tiles
  parallel_for(masks.size(), [&](int64_t i, int) {
    const int64_t rows = one ? grid.rows[i].padded() : row_tiles * shape.columns,
                  keys = one ? grid.keys[i].padded() : key_tiles * shape.rows;
    if (const auto bands = pad(masks[i], grid.rows[i], grid.keys[i]))
      grid.sketches[i] = sketch(keys, rows, *bands, shape);
    else
      too_many = true;
  });
  if (too_many) return std::nullopt;
  return grid;
}

}  // namespace

BackwardGrid lay_tiles(const HeadMasks& masks, TileShape shape, bool aligned) {
  std::optional<CutGrid> grid;
  const auto may_gain = [&](const Mask& mask) {
    return aligned ? mask.bands().size() > 1 : mask.bands().later_rows_see_more();
  };
  if (std::ranges::any_of(masks, may_gain)) grid = cut(masks, shape, aligned);
  std::vector<TileMap> maps(masks.size());
  if (grid) {
    // Visited tiles tell which grid is cheaper; only that one is drawn.
    std::vector<TileSketch> even(masks.size());
    parallel_for(masks.size(), [&](int64_t i, int) { even[i] = sketch(masks[i].transposed(), shape); });
    const bool cheaper = cost_of(grid->sketches) < cost_of(even);
    std::vector<TileSketch>& sketches = cheaper ? grid->sketches : even;
    parallel_for(masks.size(), [&](int64_t i, int) { maps[i] = draw(std::move(sketches[i])); });
    if (cheaper) return {compile(maps), table_of(grid->rows), table_of(grid->keys)};
  } else {
    parallel_for(masks.size(), [&](int64_t i, int) { maps[i] = lower_transposed(masks[i], shape); });
  }
  const std::vector<Cuts> rows(masks.size(), Cuts({}, masks.front().rows(), shape.columns)),
      keys(masks.size(), Cuts({}, masks.front().columns(), shape.rows));
  return {compile(maps), table_of(rows), table_of(keys)};
}

}  // namespace longspan::sm90
