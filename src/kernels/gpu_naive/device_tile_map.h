// A tile map in GPU memory, and a simple loop over the columns that a row sees.
#pragma once

#include "base/buffer.h"
#include "mask/lowering/tile_map.h"

namespace longspan::naive_gpu {

// The kernel argument: pointers into device memory, with the arrays of TileMap.
struct TileMapView {
  const int64_t* offsets = nullptr;
  const Run* runs = nullptr;
  const Partial* partials = nullptr;
  const Span* spans = nullptr;
  int32_t tile_rows = 0, tile_columns = 0;
  int64_t columns = 0;  // of the mask
};

class DeviceTileMap {
 public:
  DeviceTileMap(const TileMap& map, const Device& device);
  const TileMapView& view() const { return view_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  Buffer memory_;
  TileMapView view_;
};

#ifdef __CUDACC__

// Calls body(column) for each column that `row` sees; the threads of the block divide the columns.
template <class Body>
__device__ void for_visible_columns(const TileMapView& map, int64_t row, const Body& body) {
  const int64_t row_tile = row / map.tile_rows;
  const int32_t local_row = static_cast<int32_t>(row % map.tile_rows);
  for (int64_t r = map.offsets[row_tile]; r < map.offsets[row_tile + 1]; ++r) {
    const int32_t code = map.runs[r].code;
    const int64_t first = int64_t{map.runs[r].tile} * map.tile_columns;
    if (code > 0) {
      const int64_t end = min(first + int64_t{code} * map.tile_columns, map.columns);
      for (int64_t column = first + threadIdx.x; column < end; column += blockDim.x) body(column);
    } else {
      const Partial partial = map.partials[-code];
      for (int32_t layer = partial.first; layer < partial.first + partial.layers; ++layer) {
        const Span span = map.spans[int64_t{layer} * map.tile_rows + local_row];
        for (int32_t c = span.begin + static_cast<int32_t>(threadIdx.x); c < span.end;
             c += static_cast<int32_t>(blockDim.x)) {
          body(first + c);
        }
      }
    }
  }
}

#endif

}  // namespace longspan::naive_gpu
