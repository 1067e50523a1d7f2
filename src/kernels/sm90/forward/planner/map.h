// A mask in the form that the forward kernel reads: for each row tile, the tiles of keys that it visits, in
// flat arrays. Unlike a TileMap, tiles begin where the row tile's visible keys begin, and the last tile of a
// stretch of keys is cut to a multiple of 16 keys. And the order of work items. Host code without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mask/lowering/tile_piece.h"
#include "mask/lowering/tiling.h"
#include "mask/mask.h"

namespace longspan::sm90 {

inline constexpr int kStepKeys = 16;  // a product over keys proceeds in steps of 16
inline constexpr int kMostTileRows = 256, kRowBits = 9;

constexpr int cost_of_full_tile(int columns) {  // in the unit of MapRow::cost
  return columns / kStepKeys + 2;
}

// The keys of a narrow tile: the kernel multiplies a tile that has no more of them at this width. 0: all
// tiles are multiplied at one width.
constexpr int narrow_keys(int columns) {
  return columns > 64 ? (columns / kStepKeys + 1) / 2 * kStepKeys : 0;
}

// An entry of a row tile's list.
//  code > 0:  `code` consecutive full tiles from key `column` on.
//  code < 0:  a partial tile at key `column`. The next entry belongs to it: `column` there is the TileCut,
//             `code` the number of the first layer of spans.
//  code == 0: padding, so that the two entries of a partial tile lie in the same batch of kEntryBatch.
struct MapEntry {
  int32_t column = 0;
  int32_t code = 0;
};
inline constexpr int kEntryBatch = 32;  // loaded by a warp at a time, from the row tile's first on

// What the kernel needs to know about a tile, in one word: the number of steps of 16 keys; the steps that
// some row does not see in full (one bit each; bits past the last step are set); and the number of layers of
// spans. Bits 5 to 7 are flags of the kernel.
struct TileCut {
  uint32_t bits = 0;
  constexpr TileCut() = default;
  constexpr explicit TileCut(uint32_t packed) : bits(packed) {}
  constexpr TileCut(int steps, uint32_t cut_steps, int layers)
      : bits(static_cast<uint32_t>(steps) | static_cast<uint32_t>(layers) << 8 | cut_steps << 16) {}
  constexpr int steps() const { return static_cast<int>(bits & 0x1f); }
  constexpr int layers() const { return static_cast<int>(bits >> 8 & 0xff); }
  constexpr uint32_t cut_steps() const { return bits >> 16; }
};

// One row tile, in the order in which row tiles are handed out.
struct alignas(16) MapRow {
  int32_t first_row = 0;  // first token
  uint32_t first_entry = 0;
  int32_t entries = 0;                // 0: no row of the tile sees a key
  uint32_t cost : 32 - kRowBits = 0;  // steps, 2 a tile, 2 more a partial one: row tiles are in its order
  uint32_t rows : kRowBits = 0;       // tokens; 0: padding of a mask with fewer row tiles than others
};

// The map of a problem's masks, one or one for each KV head.
inline constexpr size_t kMostKeptBytes = size_t{4} << 20;  // of a map whose memory is kept for the next
struct ForwardMap {
  int32_t row_tiles = 0;
  int32_t rows_per_tile = 0;
  std::vector<MapRow> work;       // [masks, row_tiles], each mask's heaviest first
  std::vector<MapEntry> entries;  // row tiles that see the same keys share a list
  std::vector<Span> spans;        // [layers, rows_per_tile]: columns of a tile; its layers are disjoint
  int64_t tiles = 0;              // visited, over all masks and row tiles
  int64_t steps = 0;              // of these tiles

  size_t bytes() const {
    return work.size() * sizeof(MapRow) + entries.size() * sizeof(MapEntry) + spans.size() * sizeof(Span);
  }
};

// The map of a problem's masks: one mask, or one for each KV head, all of the same number of rows. Tiles have
// shape.columns keys, a multiple of kStepKeys up to 16 steps, and at most kMostTileRows rows; throws
// longspan::Error for other shapes, and for masks that need more entries or spans than 32 bits can number.
// The memory of `map` is reused: the first touch of fresh pages takes longer than lowering does.
ForwardMap lower_forward(const HeadMasks& masks, TileShape shape, RowTiles row_tiles = RowTiles::kEven,
                         ForwardMap map = {});

// ---- the order of work: an item is a row tile and a unit, the heads that one item covers -----------------

struct WorkPlace {
  int32_t unit = 0, position = 0;  // of the row tile in its mask's order, heaviest first
};

// Sections of units whose K and V stay in L2 follow each other: each row tile in order, for all units of the
// section. The heaviest row tiles of the last sections come before all that, or they would end last.
struct WorkOrder {
  int32_t row_tiles = 0, units = 0;
  int32_t section_units = 0;
  int32_t heavy_rows = 0, late_units = 0;  // so many row tiles of so many last units come first

  constexpr int32_t items() const { return row_tiles * units; }

  constexpr WorkPlace place(int32_t index) const {
    const int32_t early_units = units - late_units;
    if (index < heavy_rows * late_units) {
      const int32_t row = index / late_units;
      return {early_units + (index - row * late_units), row};
    }
    index -= heavy_rows * late_units;
    int32_t first_unit = 0, end_unit = early_units, first_row = 0;
    if (const int32_t early = early_units * row_tiles; index >= early) {
      first_unit = early_units;
      end_unit = units;
      first_row = heavy_rows;
      index -= early;
    }
    const int32_t of_section = section_units * (row_tiles - first_row);
    const int32_t section = index / of_section;
    index -= section * of_section;
    first_unit += section * section_units;
    const int32_t width = end_unit - first_unit < section_units ? end_unit - first_unit : section_units;
    const int32_t row = index / width;
    return {first_unit + (index - row * width), first_row + row};
  }
};

}  // namespace longspan::sm90
