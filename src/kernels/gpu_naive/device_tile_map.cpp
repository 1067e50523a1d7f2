#include "kernels/gpu_naive/device_tile_map.h"

#include <cstring>

namespace longspan::naive_gpu {

DeviceTileMap::DeviceTileMap(const TileMap& map, const Device& device) {
  // One allocation and one copy: the arrays are concatenated, each aligned to 256 bytes.
  std::vector<char> packed;
  const auto append = [&](const auto& array) {
    const size_t offset = (packed.size() + 255) / 256 * 256;
    packed.resize(offset + array.size() * sizeof(array[0]));
    if (!array.empty()) std::memcpy(packed.data() + offset, array.data(), array.size() * sizeof(array[0]));
    return offset;
  };
  const size_t offsets = append(map.offsets), runs = append(map.runs), partials = append(map.partials),
               spans = append(map.spans);
  memory_ = Buffer(packed.size(), device);
  copy_bytes(memory_.data(), memory_.kind(), packed.data(), DeviceKind::kCpu, packed.size());
  const char* base = memory_.as<char>();
  view_ = {.offsets = reinterpret_cast<const int64_t*>(base + offsets),
           .runs = reinterpret_cast<const Run*>(base + runs),
           .partials = reinterpret_cast<const Partial*>(base + partials),
           .spans = reinterpret_cast<const Span*>(base + spans),
           .tile_rows = map.shape.rows,
           .tile_columns = map.shape.columns,
           .columns = map.columns};
}

}  // namespace longspan::naive_gpu
