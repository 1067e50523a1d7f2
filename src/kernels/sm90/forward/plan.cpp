#include "kernels/sm90/forward/plan.h"

#include <algorithm>
#include <utility>

#include "base/cuda/cuda.h"
#include "kernels/sm90/forward/planner/map.h"

namespace longspan::sm90 {

ForwardPlan::ForwardPlan(const Problem& problem, const ForwardShape& shape, const Device& device)
    : shape_(shape) {
  thread_local ForwardMap map;
  map = lower_forward(*problem.masks, shape_.tile_shape(), shape_.row_tiles, std::move(map));
  params_.order = choose_work_order(problem, shape_, map, device);
  params_.rows_per_tile = map.rows_per_tile;
  pack_.add(map.work, params_.work);
  pack_.add(map.entries, params_.entries);
  pack_.add(map.spans, params_.spans);
  pack_.upload(device);
  params_.plan = reinterpret_cast<const uint8_t*>(pack_.data());
  params_.plan_bytes = static_cast<uint32_t>(std::min(pack_.bytes(), size_t{1} << 20));
  if (map.bytes() > kMostKeptBytes) map = ForwardMap();
}

void ForwardPlan::run(const Problem& problem, const ForwardArgs& args, const Device& device, Stream stream) {
  const cuda::DeviceGuard guard(device.index);
  const gpu::DevicePack::Use use(pack_, cuda::raw(stream));
  launch_forward(problem, shape_, params_, args, device, cuda::raw(stream));
}

}  // namespace longspan::sm90
