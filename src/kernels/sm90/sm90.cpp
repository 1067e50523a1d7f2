#include "kernels/sm90/sm90.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/cuda.h"
#include "base/error.h"
#include "base/parallel.h"
#include "kernels/sm90/compiled_map.h"
#include "kernels/sm90/forward_launch.h"
#include "kernels/sm90/forward_shape.h"

namespace longspan {
namespace {

using sm90::CompiledMap;
using sm90::DeviceMap;
using sm90::ForwardShape;

// A compiled map in the memory of a GPU: one allocation, one copy.
class UploadedMap {
 public:
  UploadedMap(const CompiledMap& map, const Device& device) {
    const size_t work = reserve(map.work), runs = reserve(map.runs), partials = reserve(map.partials),
                 spans = reserve(map.spans), counters = reserve(std::vector<int32_t>(2));
    std::vector<char> packed(bytes_, 0);
    put(packed, work, map.work);
    put(packed, runs, map.runs);
    put(packed, partials, map.partials);
    put(packed, spans, map.spans);
    memory_ = Buffer(packed.size(), device);
    copy_bytes(memory_.data(), memory_.kind(), packed.data(), DeviceKind::kCpu, packed.size());
    char* base = memory_.as<char>();
    view_ = {.work = reinterpret_cast<const sm90::WorkRow*>(base + work),
             .runs = reinterpret_cast<const sm90::DeviceRun*>(base + runs),
             .partials = reinterpret_cast<const sm90::DevicePartial*>(base + partials),
             .spans = reinterpret_cast<const uint32_t*>(base + spans),
             .row_tiles = map.row_tiles,
             .rows_per_tile = map.rows_per_tile,
             .counters = reinterpret_cast<int32_t*>(base + counters)};
  }

  const DeviceMap& view() const { return view_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  template <class T>
  size_t reserve(const std::vector<T>& array) {
    const size_t offset = bytes_;
    bytes_ += (array.size() * sizeof(T) + 255) / 256 * 256;
    return offset;
  }

  template <class T>
  static void put(std::vector<char>& packed, size_t offset, const std::vector<T>& array) {
    if (!array.empty()) std::memcpy(packed.data() + offset, array.data(), array.size() * sizeof(T));
  }

  size_t bytes_ = 0;
  Buffer memory_;
  DeviceMap view_;
};

CompiledMap compiled(const HeadMasks& masks, TileShape shape) {
  std::vector<TileMap> maps(masks.size());
  if (masks.size() == 1)
    maps[0] = lower(masks[0], shape);  // uses all threads itself
  else
    parallel_for(static_cast<int64_t>(masks.size()), [&](int64_t i, int) {
      maps[static_cast<size_t>(i)] = lower(masks[static_cast<size_t>(i)], shape);
    });
  return sm90::compile(maps);
}

class Sm90Plan final : public Plan {
 public:
  Sm90Plan(const Problem& problem, const Device& device)
      : problem_(problem),
        device_(device),
        shape_(sm90::choose_forward_shape(problem)),
        map_(compiled(*problem.masks, shape_.tile_shape()), device) {}

  size_t workspace_bytes(Direction) const override { return 0; }
  size_t plan_bytes() const override { return map_.bytes(); }

  void forward(const ForwardArgs& args, Stream stream) override {
    const cuda::DeviceGuard guard(device_.index);
    sm90::launch_forward(problem_, shape_, map_.view(), args, device_, cuda::raw(stream));
  }

  void backward(const BackwardArgs&, Stream) override {
    LONGSPAN_CHECK(false, "sm90 has no backward pass: ask supports() first");
  }

 private:
  Problem problem_;
  Device device_;
  ForwardShape shape_;
  UploadedMap map_;
};

class Sm90Kernel final : public Kernel {
 public:
  std::string_view name() const override { return "sm90"; }
  std::string_view description() const override {
    return "ours for Hopper: wgmma, TMA, one kernel for every mask (bf16, f16; forward)";
  }
  DeviceKind device_kind() const override { return DeviceKind::kCuda; }

  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCuda || device.capability != 90) return {"needs compute capability 9.0"};
    if (direction == Direction::kBackward) return {"has no backward pass yet"};
    if (problem.dtype != DType::kBF16 && problem.dtype != DType::kF16) return {"needs bf16 or f16"};
    if (problem.head_dim != 64 && problem.head_dim != 128) return {"needs head_dim 64 or 128"};
    if (!(problem.softmax_scale() > 0)) return {"needs a positive scale"};
    const ForwardShape shape = sm90::choose_forward_shape(problem);
    const int64_t row_tiles = (problem.tokens_q + shape.tokens() - 1) / shape.tokens();
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
    if (row_tiles * problem.heads_q > kMost || problem.tokens_kv > kMost)
      return {"has 32-bit tile numbers: too many tokens or heads"};
    return {};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    problem.check();
    return std::make_unique<Sm90Plan>(problem, device);
  }
};

}  // namespace

const Kernel& sm90_kernel() {
  static const Sm90Kernel kernel;
  return kernel;
}

}  // namespace longspan
