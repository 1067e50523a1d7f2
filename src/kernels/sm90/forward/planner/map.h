// A mask in the form that the forward kernel reads: for each row tile the tiles of keys that it visits, in
// flat arrays, good for a copy to the GPU. Unlike those of a TileMap, tiles begin where the row tile's
// visible keys begin, and the last one of a stretch of keys is as narrow as what is left of it. Host code
// without CUDA, so that a machine with no GPU tests it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace longspan::sm90 {

inline constexpr int kStepKeys = 16;  // a product over keys takes them in steps of 16
inline constexpr int kMostTileRows = 255;

// One of the entries that make up a row tile's list.
//  code > 0:  `code` whole tiles that are visible to all rows, one after the other from key `column` on.
//  code < 0:  a partial tile at key `column`. The entry after it belongs to it: there `column` is its TileCut
//             and `code` the number of its first layer of spans.
//  code == 0: nothing. Such entries keep the two of a partial tile within one batch of kEntryBatch.
struct MapEntry {
  int32_t column = 0;
  int32_t code = 0;
};
inline constexpr int kEntryBatch = 32;  // what a warp loads at a time, counted from the row tile's first

// What the products and the softmax need to know of a tile, in a word: how many steps of keys it has, of
// which steps some row does not see all keys (bit by step; bits past the last step are set), and by how many
// layers of spans its mask is given. Bits 5 to 7 are the kernel's own.
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

// One row tile, in the order in which the scheduler hands row tiles out.
struct alignas(16) MapRow {
  int32_t first_row = 0;  // of tokens
  uint32_t first_entry = 0;
  int32_t entries = 0;  // 0: no row of the tile sees a key
  uint32_t cost : 24 =
      0;  // by which they are ordered: steps of keys, and two more a tile, as far as 24 bits go
  uint32_t rows : 8 = 0;  // of tokens; 0: no row tile, but makes one mask have as many as the others
};

// The masks of a problem, one or one per KV head.
struct ForwardMap {
  int32_t row_tiles = 0;
  int32_t rows_per_tile = 0;
  std::vector<MapRow> work;       // [masks, row_tiles], each mask's heaviest first
  std::vector<MapEntry> entries;  // row tiles that see the same keys share theirs
  std::vector<uint32_t> spans;    // [layers, rows_per_tile]: columns of a tile, begin in the low half, end in
                                  // the high half; no two layers of a tile show the same pair
  int64_t tiles = 0;              // visited, over all masks and row tiles
  int64_t steps = 0;              // of these tiles

  size_t bytes() const {
    return work.size() * sizeof(MapRow) + entries.size() * sizeof(MapEntry) + spans.size() * sizeof(uint32_t);
  }
};

// Where row tiles begin: every shape.rows rows, or so anew at each edge of a band's rows: then no row tile
// lies in two blocks of rows, or in two documents.
enum class RowTiles : uint8_t { kEven, kOfBlocks };

}  // namespace longspan::sm90
