// Tile maps in the form that the portable kernels read: flat arrays, ready to be copied to the GPU. Host code
// without CUDA, except for the structs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/lowering/tile_map.h"

namespace longspan::portable {

// Consecutive column tiles of one row tile.
//   code > 0: `code` full tiles.   code <= 0: one partial tile, whose first layer of spans is -code / 2; even
//   if it is the only one
struct alignas(16) MapRun {
  int32_t tile = 0;
  int32_t code = 0;
  int32_t layers = 0;  // of a partial tile
  // Row tiles of this map that come before in its order of work and visit the column tile, too; the same for
  // all column tiles of the run. Deterministic additions take turns by it.
  int32_t turn = 0;
};

// One item of work: a row tile or a piece of one.
struct MapRow {
  int32_t tile = 0;  // -1: nothing to do
  uint32_t first_run = 0;
  int32_t runs = 0;
  int32_t slot = -1;  // of sums that the pieces of a tile share, in its mask; -1: the tile is whole
  int32_t pieces = 1;
};

// The maps of a problem, one or one for each KV head, of the same tile shape.
struct KernelMap {
  int32_t items = 0;  // of each mask
  int32_t rows_per_tile = 0;
  int32_t row_tiles = 0;
  std::vector<MapRow> rows;  // [masks, items], in the order in which they are handed out
  std::vector<MapRun> runs;
  std::vector<uint32_t> spans;  // [layers, rows_per_tile]: begin in the low half, end in the high half
  std::vector<int32_t> slots;   // [masks]: those in use
};

// How row tiles are cut in pieces.
struct Pieces {
  int32_t most_more = 0;  // items beyond one for each row tile, and slots; the grid has them in any case
  int64_t tiles = 0;      // column tiles of a piece, as far as most_more allows
  // If positive, pieces are the parts of row tiles in segments of so many column tiles. Items of the last
  // segment come first.
  int32_t segment = 0;
  // Whether a piece's walk, from its last column tile down, begins below a multiple of the longest piece's
  // extent instead and comes to what lies above at its end. Pieces that begin at the same time then visit
  // common column tiles at the same time, where these are shifted from piece to piece, as in windows.
  bool in_step = false;
};

// Without segments: column tiles of a piece of this map, at most (0: row tiles are whole), and the pieces of
// a row tile of so many column tiles.
int64_t piece_tiles(const TileMap& map, const Pieces& pieces);
int64_t pieces_of(int64_t tiles, int64_t most);

// Items by descending cost (of each segment) or, in turns, whole row tiles by ascending index, with the turns
// of their runs.
KernelMap compile_map(std::span<const TileMap> maps, bool in_turns, Pieces pieces = {});

}  // namespace longspan::portable
