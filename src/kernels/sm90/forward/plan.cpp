#include "kernels/sm90/forward/plan.h"

#include "base/cuda/cuda.h"
#include "kernels/sm90/forward/planner/lower.h"

namespace longspan::sm90 {

ForwardPlan::ForwardPlan(const Problem& problem, const ForwardShape& shape, const Device& device)
    : shape_(shape) {
  thread_local ForwardMap map;
  lower_forward(*problem.masks, shape_.tile_shape(), shape_.row_tiles, map);
  map_.order = choose_work_order(problem, shape_, map, device);
  map_.rows_per_tile = map.rows_per_tile;
  ForwardSplit split;
  if (shape_.paired) {
    map_.workers = pairs_at_a_time(device);
    split = split_last_wave(map, map_.order, shape_.columns, map_.workers);
    for (ItemPart& part : split.parts) part.row.first_entry += static_cast<uint32_t>(map.entries.size());
    map.entries.insert(map.entries.end(), split.entries.begin(), split.entries.end());
  }
  const size_t work = pack_.add(map.work), entries = pack_.add(map.entries), spans = pack_.add(map.spans),
               parts = pack_.add(split.parts);
  pack_.upload(device);
  map_.work = pack_.at<const MapRow>(work);
  map_.entries = pack_.at<const MapEntry>(entries);
  map_.spans = pack_.at<const uint32_t>(spans);
  map_.plan = pack_.at<const uint8_t>(0);
  map_.plan_bytes = pack_.bytes();
  map_.whole_items = split.has_parts() ? split.whole_items : map_.order.items();
  map_.parts = pack_.at<const ItemPart>(parts);
  map_.parts_count = static_cast<int32_t>(split.parts.size());
  lay_out_workspace(split.slots, problem.dim_v());
  constexpr size_t kMostKept = size_t{4} << 20;  // bytes
  if (map.bytes() > kMostKept) map = ForwardMap();
}

void ForwardPlan::lay_out_workspace(int32_t slots, int64_t head_dim_v) {
  constexpr size_t kWarps = 8;  // consumer warps of a CTA
  const size_t blocks = static_cast<size_t>(slots) * 2;
  const size_t rows = blocks * static_cast<size_t>(shape_.tile_rows());
  const auto take = [&](size_t bytes) {
    const size_t offset = workspace_.bytes;
    workspace_.bytes += (bytes + 255) / 256 * 256;
    return offset;
  };
  if (!shape_.paired) workspace_.next_item = take(sizeof(int32_t));  // pairs take items in a fixed order
  workspace_.arrived = take(blocks * kWarps * sizeof(int32_t));
  workspace_.zeros_bytes = workspace_.bytes;
  workspace_.scratch_rows = take(rows * sizeof(float2));
  workspace_.scratch_o = take(rows * static_cast<size_t>(head_dim_v) * sizeof(float));
}

void ForwardPlan::run(const Problem& problem, const ForwardArgs& args, const Device& device, Stream stream) {
  const cuda::DeviceGuard guard(device.index);
  const gpu::DevicePack::Use use(pack_, cuda::raw(stream));
  launch_forward(problem, shape_, map_, workspace_, args, device, cuda::raw(stream));
}

}  // namespace longspan::sm90
