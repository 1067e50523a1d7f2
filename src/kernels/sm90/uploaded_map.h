// A compiled tile map in the memory of a GPU.
#pragma once

#include "base/buffer.h"
#include "kernels/sm90/compiled_map.h"

namespace longspan::sm90 {

struct DeviceMap {
  const WorkRow* work = nullptr;
  const DeviceRun* runs = nullptr;
  const DevicePartial* partials = nullptr;
  const uint32_t* spans = nullptr;
  int32_t row_tiles = 0, rows_per_tile = 0;
  int32_t* counters = nullptr;  // [2], zero before the first launch; the kernels leave them at zero
};

// One allocation, one copy.
class UploadedMap {
 public:
  UploadedMap(const CompiledMap& map, const Device& device);
  const DeviceMap& view() const { return view_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  Buffer memory_;
  DeviceMap view_;
};

// The maps of all masks at one tile shape.
CompiledMap lower_and_compile(const HeadMasks& masks, TileShape shape);

}  // namespace longspan::sm90
