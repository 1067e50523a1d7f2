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
  constexpr size_t kWarps = 8;  // consumer warps of a CTA
  const size_t blocks = static_cast<size_t>(split.slots) * 2;
  const size_t rows = blocks * static_cast<size_t>(shape_.tile_rows());
  const size_t work = pack_.add(map.work), entries = pack_.add(map.entries), spans = pack_.add(map.spans),
               parts = pack_.add(split.parts), counters = pack_.add_zeros(2 * sizeof(int32_t)),
               arrived = pack_.add_zeros(blocks * kWarps * sizeof(int32_t)), read = pack_.bytes(),
               scratch_rows = pack_.add_room(rows * sizeof(float2)),
               scratch_o = pack_.add_room(rows * static_cast<size_t>(problem.head_dim) * sizeof(float));
  pack_.upload(device);
  map_.work = pack_.at<const MapRow>(work);
  map_.entries = pack_.at<const MapEntry>(entries);
  map_.spans = pack_.at<const uint32_t>(spans);
  map_.plan = pack_.at<const uint8_t>(0);
  map_.plan_bytes = read;
  map_.counters = pack_.at<int32_t>(counters);
  map_.whole_items = split.has_parts() ? split.whole_items : map_.order.items();
  map_.parts = pack_.at<const ItemPart>(parts);
  map_.parts_count = static_cast<int32_t>(split.parts.size());
  map_.scratch_o = pack_.at<float4>(scratch_o);
  map_.scratch_rows = pack_.at<float2>(scratch_rows);
  map_.scratch_arrived = pack_.at<int32_t>(arrived);
  constexpr size_t kMostKept = size_t{4} << 20;  // bytes
  if (map.bytes() > kMostKept) map = ForwardMap();
}

void ForwardPlan::run(const Problem& problem, const ForwardArgs& args, const Device& device, Stream stream) {
  const cuda::DeviceGuard guard(device.index);
  pack_.wait_in(stream);
  launch_forward(problem, shape_, map_, args, device, cuda::raw(stream));
}

}  // namespace longspan::sm90
