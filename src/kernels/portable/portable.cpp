#include "kernels/portable/portable.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "attention/sinks_cuda.h"
#include "base/cuda/cuda.h"
#include "base/error.h"
#include "kernels/gpu/device_pack.h"
#include "kernels/portable/arrangement.h"
#include "kernels/portable/choose_shape.h"
#include "kernels/portable/launch.h"

namespace longspan {
namespace {

using portable::KernelMap;
using portable::MapView;

// A KernelMap on the device.
class DeviceMap {
 public:
  DeviceMap(const KernelMap& map, const std::vector<float>& slopes, const Device& device) {
    pack_.add(slopes, slopes_);
    pack_.add(map.rows, view_.rows);
    pack_.add(map.runs, view_.runs);
    pack_.add(map.spans, view_.spans);
    pack_.add(map.slots, view_.slots);
    pack_.upload(device);
    view_.items = map.items;
    view_.rows_per_tile = map.rows_per_tile;
  }
  gpu::DevicePack& pack() { return pack_; }
  const MapView& view() const { return view_; }
  const float* slopes() const { return slopes_; }  // of ALiBi
  size_t bytes() const { return pack_.bytes(); }

 private:
  gpu::DevicePack pack_;
  MapView view_;
  const float* slopes_ = nullptr;
};

// An arrangement whose map is on the device only.
template <class Arrangement>
struct Uploaded {
  Arrangement arrangement;
  DeviceMap map;
  Uploaded(Arrangement arranged, const Problem& problem, const Device& device)
      : arrangement(std::move(arranged)), map(arrangement.map, problem.alibi_slopes, device) {
    arrangement.map = KernelMap();
  }
};

class PortablePlan final : public Plan {
 public:
  PortablePlan(const Problem& problem, const Device& device, bool with_backward)
      : problem_(problem),
        device_(device),
        forward_(portable::arrange_forward(problem, portable::choose_forward_shape(problem, device), device),
                 problem, device) {
    if (with_backward)
      backward_.emplace(
          portable::arrange_backward(problem, portable::choose_backward_shape(problem, device), device),
          problem, device);
  }

  size_t workspace_bytes(Direction direction) const override {
    return direction == Direction::kBackward && backward_ ? backward_->arrangement.workspace.bytes : 0;
  }
  size_t plan_bytes() const override {
    return forward_.map.bytes() + (backward_ ? backward_->map.bytes() : 0);
  }

  void forward(const ForwardArgs& args, Stream stream) override {
    const cuda::DeviceGuard guard(device_.index);
    const gpu::DevicePack::Use use(forward_.map.pack(), cuda::raw(stream));
    launch_forward(
        problem_.dtype, forward_.arrangement.shape,
        forward_params(problem_, forward_.arrangement, forward_.map.view(), args, forward_.map.slopes()),
        stream);
  }

  void backward(const BackwardArgs& args, Stream stream) override {
    LONGSPAN_CHECK(backward_.has_value(),
                   "this plan has no backward pass: make it with plan(), not plan_forward()");
    const cuda::DeviceGuard guard(device_.index);
    const gpu::DevicePack::Use use(backward_->map.pack(), cuda::raw(stream));
    const portable::BackwardParams params = backward_params(
        problem_, backward_->arrangement, backward_->map.view(), args, backward_->map.slopes());
    launch_backward(problem_.dtype, backward_->arrangement.shape, params, stream);
    if (args.sinks == nullptr) return;
    cuda::sink_gradients({.data = params.stats,
                          .tiles = params.query_tiles,
                          .rows = params.rows,
                          .log2_pack = params.heads.log2_pack},
                         problem_.heads_q, args.sinks, args.dsinks, stream);
  }

 private:
  Problem problem_;
  Device device_;
  Uploaded<portable::ForwardArrangement> forward_;
  std::optional<Uploaded<portable::BackwardArrangement>> backward_;
};

class PortableKernel final : public Kernel {
 public:
  std::string_view name() const override { return "portable"; }
  std::string_view description() const override {
    return "ours for Ampere and later: mma.sync, one kernel for every mask (bf16, f16)";
  }
  DeviceKind device_kind() const override { return DeviceKind::kCuda; }
  bool merges_parts() const override { return true; }
  size_t row_alignment() const override { return 16; }  // of cp.async

  Support supports(const Problem& problem, Direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCuda || device.capability < 80)
      return {"needs compute capability 8.0 or later"};
    if (std::string reason = portable::unsupported_problem(problem); !reason.empty()) return {reason};
    return {portable::no_code_reason(device)};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    problem.check();
    return std::make_unique<PortablePlan>(problem, device, true);
  }
  std::unique_ptr<Plan> plan_forward(const Problem& problem, const Device& device) const override {
    problem.check();
    return std::make_unique<PortablePlan>(problem, device, false);
  }
};

}  // namespace

const Kernel& portable_kernel() {
  static const PortableKernel kernel;
  return kernel;
}

}  // namespace longspan
