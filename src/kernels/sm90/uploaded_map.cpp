#include "kernels/sm90/uploaded_map.h"

#include <cstring>
#include <vector>

#include "base/parallel.h"

namespace longspan::sm90 {
namespace {

class Packing {
 public:
  template <class T>
  size_t append(const std::vector<T>& array) {
    const size_t offset = (bytes_.size() + 255) / 256 * 256;
    bytes_.resize(offset + array.size() * sizeof(T));
    if (!array.empty()) std::memcpy(bytes_.data() + offset, array.data(), array.size() * sizeof(T));
    return offset;
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

}  // namespace

UploadedMap::UploadedMap(const CompiledMap& map, const Device& device) {
  Packing packing;
  const size_t work = packing.append(map.work), runs = packing.append(map.runs),
               partials = packing.append(map.partials), spans = packing.append(map.spans),
               counters = packing.append(std::vector<int32_t>(2));
  memory_ = Buffer(packing.bytes().size(), device);
  copy_bytes(memory_.data(), memory_.kind(), packing.bytes().data(), DeviceKind::kCpu,
             packing.bytes().size());
  char* base = memory_.as<char>();
  view_ = {.work = reinterpret_cast<const WorkRow*>(base + work),
           .runs = reinterpret_cast<const DeviceRun*>(base + runs),
           .partials = reinterpret_cast<const DevicePartial*>(base + partials),
           .spans = reinterpret_cast<const uint32_t*>(base + spans),
           .row_tiles = map.row_tiles,
           .rows_per_tile = map.rows_per_tile,
           .counters = reinterpret_cast<int32_t*>(base + counters)};
}

CompiledMap lower_and_compile(const HeadMasks& masks, TileShape shape) {
  std::vector<TileMap> maps(masks.size());
  if (masks.size() == 1)
    maps[0] = lower(masks[0], shape);  // uses all threads itself
  else
    parallel_for(static_cast<int64_t>(masks.size()), [&](int64_t i, int) {
      maps[static_cast<size_t>(i)] = lower(masks[static_cast<size_t>(i)], shape);
    });
  return compile(maps);
}

}  // namespace longspan::sm90
