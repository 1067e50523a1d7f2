// A tile map in the form that the Hopper kernels read: flat arrays of plain data, ready to be copied to the
// GPU. Host code without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/lowering/tile_map.h"

namespace longspan::sm90 {

// Consecutive tiles of keys that a row tile visits, from key `column` on.
//  code > 0: `code` full tiles.  code < 0: one partial tile, see partial_code().
struct DeviceRun {
  int32_t column = 0;
  int32_t code = 0;
};

constexpr int32_t tiles_of(const DeviceRun& run) {
  return run.code > 0 ? run.code : 1;
}

// A partial tile's code is the number of its only layer of spans or, with kManyLayers, of its entry in
// `partials`.
inline constexpr int32_t kManyLayers = 1 << 30;
// Bits beside the number, by mark_unseen_parts(): kUnseenPart << i if rows [64 i, 64 i + 64) see nothing.
inline constexpr int32_t kUnseenPart = 1 << 27, kUnseenParts = 7 * kUnseenPart;
constexpr int32_t partial_code(int32_t number, bool many_layers) {
  return ~(number | (many_layers ? kManyLayers : 0));
}

struct DevicePartial {
  int32_t first = 0, layers = 0;  // layers of spans
};

// One row tile, in the order in which row tiles are handed out.
struct WorkRow {
  int32_t row_tile = 0;
  uint32_t first_run = 0;
  int32_t runs = 0;   // 0: no row of the tile sees a key
  int32_t tiles = 0;  // of these runs
};

// All tile maps of a problem, one or one for each KV head, of the same tile shape and number of row tiles.
struct CompiledMap {
  int32_t row_tiles = 0;
  int32_t rows_per_tile = 0, columns_per_tile = 0;
  std::vector<WorkRow> work;            // [masks, row_tiles], each mask's heaviest first
  std::vector<DeviceRun> runs;          // of all masks
  std::vector<DevicePartial> partials;  // partial tiles of more than one layer
  std::vector<Span> spans;              // [layers, rows_per_tile]

  int32_t first_tile(const DeviceRun& run) const { return run.column / columns_per_tile; }
  int32_t end_of(const WorkRow& row) const;                 // behind its last tile, in column tiles
  int32_t end_of_column_tiles() const;                      // that any run visits
  int64_t tiles(size_t first_run, size_t run_count) const;  // of these runs
};

CompiledMap compile(std::span<const TileMap> maps);

// Sets those bits in the codes of partial tiles that see something. rows_per_tile is a multiple of 64, 192 at
// most.
void mark_unseen_parts(CompiledMap& map);

}  // namespace longspan::sm90
