// Compares shapes of the portable kernels on a GPU: each trial is verified on a small problem of its
// head_dim, then all of them are timed in turns and in reverse, with a cold L2, so that none always has the
// cooler chip.
//
//   portable_probe forward|backward [mask,...] [head_dim,...] [seqlen] [seconds a trial]
//   PORTABLE_SECTION_HEADS: KV heads that the forward pass works on at a time, in place of the planner's
//   number
//
// Trials beyond the planner's own shapes are in portable_trials.h.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "attention/oracle/verify.h"
#include "attention/tensors.h"
#include "base/cuda/cuda.h"
#include "kernels/gpu/device_pack.h"
#include "kernels/portable/arrangement.h"
#include "kernels/portable/choose_shape.h"
#include "kernels/portable/instances.h"
#include "kernels/portable/launch.h"
#include "probe_case.h"

namespace longspan {
namespace {

using portable::BackwardShape;
using portable::ForwardShape;

Device first_gpu() {
  for (const Device& device : devices())
    if (device.kind == DeviceKind::kCuda) return device;
  return {};
}

// A map on the device.
struct DeviceMap {
  gpu::DevicePack pack;
  portable::MapView view;
  DeviceMap(const portable::KernelMap& map, const Device& device) {
    const size_t rows = pack.add(map.rows), runs = pack.add(map.runs), spans = pack.add(map.spans),
                 slots = pack.add(map.slots);
    pack.upload(device);
    view = {pack.at<const portable::MapRow>(rows),
            pack.at<const portable::MapRun>(runs),
            pack.at<const uint32_t>(spans),
            pack.at<const int32_t>(slots),
            map.items,
            map.rows_per_tile};
  }
};

class ProbePlan final : public Plan {
 public:
  ProbePlan(const Problem& problem, const ForwardShape& forward, const BackwardShape& backward,
            const Device& device)
      : problem_(problem),
        forward_(arrange_forward(problem, forward, device)),
        backward_(arrange_backward(problem, backward, device)),
        forward_map_(forward_.map, device),
        backward_map_(backward_.map, device) {
    if (const char* heads = std::getenv("PORTABLE_SECTION_HEADS"))
      forward_.order.section_heads =
          std::min(std::atoi(heads) * forward_.heads.units_per_kv, forward_.order.heads);
  }

  size_t workspace_bytes(Direction direction) const override {
    return direction == Direction::kBackward ? backward_.workspace.bytes : 0;
  }
  size_t plan_bytes() const override { return 0; }
  void forward(const ForwardArgs& args, Stream stream) override {
    const gpu::DevicePack::Use use(forward_map_.pack, cuda::raw(stream));
    launch_forward(problem_.dtype, forward_.shape,
                   forward_params(problem_, forward_, forward_map_.view, args), stream);
  }
  void backward(const BackwardArgs& args, Stream stream) override {
    const gpu::DevicePack::Use use(backward_map_.pack, cuda::raw(stream));
    launch_backward(problem_.dtype, backward_.shape,
                    backward_params(problem_, backward_, backward_map_.view, args), stream);
  }

 private:
  Problem problem_;
  portable::ForwardArrangement forward_;
  portable::BackwardArrangement backward_;
  DeviceMap forward_map_, backward_map_;
};

std::string name_of(const ForwardShape& s) {
  return fmt::format("{}x{} w{} s{}", s.rows, s.keys, s.warps, s.stages);
}
std::string name_of(const BackwardShape& s) {
  return fmt::format("{}x{} w{} k{} q{} s{} p{}.{} g{}", s.rows, s.keys, s.warps, s.key_groups, s.dq_rows,
                     s.stages, s.parts, s.dq_parts, s.segments);
}

struct Trial {
  ForwardShape forward;
  BackwardShape backward;
  std::string name;
  std::unique_ptr<ProbePlan> plan;
  std::vector<double> times;
};

std::vector<Trial> trials_of(bool backward, const Problem& problem, const Device& gpu) {
  std::vector<Trial> trials;
  const auto add = [&](const ForwardShape& f, const BackwardShape& b, const std::string& name) {
    for (const Trial& trial : trials)
      if (trial.name == name) return;
    Trial trial;
    trial.forward = f, trial.backward = b, trial.name = name;
    trials.push_back(std::move(trial));
  };
  const auto fits = [&](const auto& shape) {
    return shape.head_dim == problem.head_dim &&
           shape.shared_bytes() <= portable::most_shared_bytes(gpu.capability);
  };
  const ForwardShape forward = portable::choose_forward_shape(problem, gpu);
  const BackwardShape chosen = portable::choose_backward_shape(problem, gpu);
  if (backward) {
    for (const BackwardShape& shape : portable::kBackwardInstances)
      if (fits(shape)) add(forward, shape, name_of(shape));
  } else {
    for (const ForwardShape& shape : portable::kForwardInstances)
      if (fits(shape)) add(shape, chosen, name_of(shape));
  }
  return trials;
}

Problem problem_with(HeadMasks masks, int64_t head_dim) {
  Problem p;
  p.masks = std::make_shared<const HeadMasks>(std::move(masks));
  p.tokens_q = p.masks->front().rows();
  p.tokens_kv = p.masks->front().columns();
  p.heads_q = 64, p.heads_kv = 8;
  p.head_dim = head_dim;
  p.dtype = DType::kBF16;
  return p;
}

// "right", or what is wrong.
std::string verdict(const Trial& trial, int64_t head_dim, bool backward, const Device& gpu) {
  for (const char* mask : {"full", "causal_document"}) {
    Problem small = problem_with(pattern(mask, 1000), head_dim);
    small.heads_q = 16, small.heads_kv = 2;
    ProbePlan plan(small, trial.forward, trial.backward, gpu);
    const VerifyReport report =
        verify(plan, small, backward ? Direction::kBackward : Direction::kForward, gpu, {});
    if (!report.passed()) return fmt::format("WRONG ({}): {}", mask, report.failure);
  }
  return "right";
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

void compare(const std::string& mask, int64_t head_dim, int64_t seqlen, bool backward, double seconds,
             const Device& gpu) {
  const Problem problem = problem_with(pattern(mask, seqlen), head_dim);
  const Direction direction = backward ? Direction::kBackward : Direction::kForward;
  std::vector<Trial> trials = trials_of(backward, problem, gpu);
  if (trials.empty()) return;
  for (Trial& trial : trials)
    trial.plan = std::make_unique<ProbePlan>(problem, trial.forward, trial.backward, gpu);
  size_t most = 0;
  for (size_t i = 0; i < trials.size(); ++i)
    if (trials[i].plan->workspace_bytes(direction) > trials[most].plan->workspace_bytes(direction)) most = i;
  ProblemTensors tensors(problem, direction, gpu, *trials[most].plan);
  tensors.fill_inputs(7);
  tensors.forward(*trials.front().plan);
  Buffer flush(size_t{192} << 20, gpu);
  const double work = flops(problem, direction);
  const int repeats = std::clamp(static_cast<int>(seconds / (work / 300e12 + 150e-6)), 3, 500);
  std::vector<std::unique_ptr<cuda::Event>> events;
  for (int i = 0; i < 2 * repeats; ++i) events.push_back(std::make_unique<cuda::Event>(0));
  for (int turn = -1; turn < 4; ++turn)
    for (size_t t = 0; t < trials.size(); ++t) {
      Trial& trial = trials[turn % 2 == 1 ? trials.size() - 1 - t : t];
      for (int i = 0; i < repeats; ++i) {
        const auto at = static_cast<size_t>(2 * i);
        cuda::fill_async(flush.data(), static_cast<unsigned char>(i), flush.bytes(), Stream{});
        events[at]->record(Stream{});
        backward ? tensors.backward(*trial.plan) : tensors.forward(*trial.plan);
        events[at + 1]->record(Stream{});
        if (turn < 0 && i == 1) break;  // warm-up
      }
      cuda::synchronize(Stream{});
      if (turn < 0) continue;
      for (int i = 0; i < repeats; ++i) {
        const auto at = static_cast<size_t>(2 * i);
        trial.times.push_back(events[at + 1]->seconds_since(*events[at]));
      }
    }
  for (const Trial& trial : trials) {
    const double t = median(trial.times);
    std::printf("%-8s %-22s %4d %6d  %-26s %9.1f us %6.1f TFLOP/s  %s\n", backward ? "backward" : "forward",
                mask.c_str(), static_cast<int>(head_dim), static_cast<int>(seqlen), trial.name.c_str(),
                t * 1e6, work / t * 1e-12,
                mask == "full" ? verdict(trial, head_dim, backward, gpu).c_str() : "");
  }
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  return parts;
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  if (argc < 2) {
    std::printf("portable_probe forward|backward [mask,...] [head_dim,...] [seqlen] [seconds a trial]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string pass = argv[1], masks = argc > 2 ? argv[2] : "full,causal",
                    head_dims = argc > 3 ? argv[3] : "128";
  const int64_t seqlen = argc > 4 ? std::atoll(argv[4]) : 8192;
  const double seconds = argc > 5 ? std::atof(argv[5]) : 0.05;
  try {
    const Device gpu = first_gpu();
    for (const std::string& head_dim : split(head_dims))
      for (const std::string& mask : split(masks))
        compare(mask, std::atoll(head_dim.c_str()), seqlen, pass == "backward", seconds, gpu);
  } catch (const std::exception& error) {
    std::printf("stopped: %s\n", error.what());
    return 1;
  }
  return 0;
}
