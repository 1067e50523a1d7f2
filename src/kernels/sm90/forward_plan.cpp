#include "kernels/sm90/forward_plan.h"

#include "base/cuda.h"

namespace longspan::sm90 {

ForwardPlan::ForwardPlan(const Problem& problem, const ForwardShape& shape, const Device& device)
    : shape_(shape) {
  thread_local ForwardMap map;
  lower_forward(*problem.masks, shape_.tile_shape(), shape_.row_tiles, map);
  const size_t work = pack_.add(map.work), entries = pack_.add(map.entries), spans = pack_.add(map.spans),
               counters = pack_.add_zeros(2 * sizeof(int32_t));
  pack_.upload(device);
  map_ = {.work = pack_.at<const MapRow>(work),
          .entries = pack_.at<const MapEntry>(entries),
          .spans = pack_.at<const uint32_t>(spans),
          .plan = pack_.at<const uint8_t>(0),
          .plan_bytes = pack_.bytes(),
          .order = choose_work_order(problem, shape_, map, device),
          .rows_per_tile = map.rows_per_tile,
          .counters = pack_.at<int32_t>(counters)};
  constexpr size_t kMostKept = size_t{4} << 20;  // bytes
  if (map.bytes() > kMostKept) map = ForwardMap();
}

void ForwardPlan::run(const Problem& problem, const ForwardArgs& args, const Device& device,
                      Stream stream) const {
  const cuda::DeviceGuard guard(device.index);
  launch_forward(problem, shape_, map_, args, device, cuda::raw(stream));
}

}  // namespace longspan::sm90
