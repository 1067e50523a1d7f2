#include "cp/execute/parallel_kernel.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "cp/execute/crew.h"
#include "cp/execute/device_clock.h"
#include "cp/execute/process_plan.h"
#include "cp/execute/rank_tensors.h"

namespace longspan {
namespace {

class SpreadPlan : public ParallelPlan {
 public:
  SpreadPlan(const Kernel& kernel, const ParallelOptions& options, const Problem& problem, Direction until)
      : problem_(problem),
        schedule_(options.strategy->schedule(problem, options.topology, options.options)),
        devices_(devices_of(options)),
        tensors_(devices_.size()),
        executors_(devices_.size()),
        clocks_(devices_.size()),
        crew_(options.communicators(devices_, options.limit), devices_) {
    check(schedule_, problem);
    // Streams and plans are created on the threads that use them, which have selected the device.
    crew_.run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      clocks_[rank] = DeviceClock::make(devices_[rank]);
      tensors_[rank].emplace(problem_, schedule_.owned[rank], devices_[rank]);
      executors_[rank] =
          std::make_unique<Executor>(schedule_, problem_, kernel, devices_[rank], communicator, until);
      tensors_[rank]->kept = Buffer(executors_[rank]->kept_bytes(), devices_[rank]);
    });
  }

  ~SpreadPlan() override {
    // Device objects are destroyed on the rank's thread that created them.
    try {
      crew_.run([&](Communicator& communicator) {
        const auto rank = static_cast<size_t>(communicator.rank());
        executors_[rank].reset();
        tensors_[rank].reset();
        clocks_[rank].reset();
      });
    } catch (const std::exception&) {  // the group has already failed
    }
  }

  size_t workspace_bytes(Direction) const override { return 0; }
  size_t plan_bytes() const override {
    size_t bytes = 0;
    for (const auto& executor : executors_) bytes += executor->plan_bytes();
    return bytes;
  }
  const Schedule& schedule() const override { return schedule_; }

  void forward(const ForwardArgs& args, Stream) override {
    synchronize_devices();
    crew_.run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      RankTensors& t = *tensors_[rank];
      t.take_inputs(args.q, args.k, args.v);
      pass(rank, Direction::kForward);
      rows_to_whole(t.o, args.o, t.ranges, t.kind);
      if (args.lse != nullptr)
        lse_to_whole(t.lse, args.lse, problem_.tokens_q, problem_.heads_q, t.ranges, t.kind);
    });
  }

  // Reruns the ranks' forward pass: the backward pass needs data that the whole tensors do not hold.
  void backward(const BackwardArgs& args, Stream) override {
    synchronize_devices();
    crew_.run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      RankTensors& t = *tensors_[rank];
      t.add_gradients(problem_, devices_[rank]);
      t.take_inputs(args.q, args.k, args.v);
      t.take_gradients(args.dout, args.dlse);
      pass(rank, Direction::kForward);
      pass(rank, Direction::kBackward);
      rows_to_whole(t.dq, args.dq, t.ranges, t.kind);
      rows_to_whole(t.dk, args.dk, t.ranges, t.kind);
      rows_to_whole(t.dv, args.dv, t.ranges, t.kind);
    });
  }

  std::vector<RankPass> run(Direction direction, bool cold_cache) override {
    std::vector<RankPass> passes(executors_.size());
    crew_.run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      if (direction == Direction::kBackward) {
        LONGSPAN_CHECK(tensors_[rank]->dq.data != nullptr, "no backward pass has run yet");
        pass(rank, Direction::kForward);
      }
      if (cold_cache) clocks_[rank]->empty_caches();
      communicator.barrier();
      passes[rank] = pass(rank, direction, queue_ ? &communicator : nullptr);
    });
    for (const auto& clock : clocks_) queue_ = queue_ && clock->was_held();
    return passes;
  }

  std::vector<Memory> memory() const override {
    std::vector<Memory> all;
    for (size_t rank = 0; rank < tensors_.size(); ++rank) {
      for (const Buffer& buffer : tensors_[rank]->buffers)
        all.push_back({static_cast<int>(rank), buffer.data(), buffer.bytes()});
    }
    return all;
  }

 private:
  static std::vector<Device> devices_of(const ParallelOptions& options) {
    std::vector<Device> devices;
    devices.reserve(static_cast<size_t>(options.topology.ranks()));
    for (int rank = 0; rank < options.topology.ranks(); ++rank)
      devices.push_back(options.devices[static_cast<size_t>(rank) % options.devices.size()]);
    return devices;
  }

  // A stream of the caller may still be writing the tensors.
  void synchronize_devices() const {
    if (devices_.front().kind != DeviceKind::kCpu) DeviceClock::make(devices_.front())->synchronize_device();
  }

  // With a group, all ranks' GPUs start once every rank has queued its part, so that launch gaps are hidden
  // as in training.
  RankPass pass(size_t rank, Direction direction, Communicator* together = nullptr) {
    DeviceClock& clock = *clocks_[rank];
    clock.reset();
    if (together != nullptr) clock.hold();
    const int begin = clock.mark(clock.stream());
    if (direction == Direction::kForward) {
      executors_[rank]->forward(tensors_[rank]->forward(), tensors_[rank]->kept.data(), clock.stream());
    } else {
      executors_[rank]->backward(tensors_[rank]->backward(), tensors_[rank]->kept.data(), clock.stream());
    }
    const int end = clock.mark(clock.stream());
    if (together != nullptr) {
      together->barrier();
      if (rank == 0) {
        for (const auto& each : clocks_) each->let_go();
      }
    }
    executors_[rank]->finish(clock.stream());
    return {clock.seconds(begin, end), executors_[rank]->times()};
  }

  const Problem problem_;
  const Schedule schedule_;
  const std::vector<Device> devices_;
  std::vector<std::optional<RankTensors>> tensors_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<DeviceClock>> clocks_;
  bool queue_ = true;  // queue launches ahead, as long as nothing in a pass blocks on the device
  Crew crew_;          // declared last so that its threads end before the members they use are destroyed
};

class SpreadKernel : public Kernel {
 public:
  SpreadKernel(const Kernel& kernel, ParallelOptions options)
      : kernel_(kernel),
        options_(std::move(options)),
        name_(fmt::format("{} over {}", options_.strategy->name, kernel.name())) {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return options_.strategy->description; }
  DeviceKind device_kind() const override { return kernel_.device_kind(); }

  bool takes_sinks() const override { return true; }  // to refuse them: nobody adds them to a rank's rows

  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (problem.tokens_q != problem.tokens_kv) {
      return {fmt::format("needs as many keys as rows to distribute them over ranks, not {} and {}",
                          problem.tokens_kv, problem.tokens_q)};
    }
    if (!problem.alibi_slopes.empty())
      return {"has no ALiBi over ranks: a rank's attends know tokens by their place in its share only"};
    if (!problem.sinks.empty()) return {"takes no sinks over ranks: add_sinks() adds them to a rank's rows"};
    if (problem.fp32_output) return {"returns results in the tensors' own dtype, not in fp32"};
    if (Support support = options_.strategy->supports(problem, options_.topology, options_.options); !support)
      return {fmt::format("{} {}", options_.strategy->name, support.reason)};
    Problem part = problem;  // the executor asks again for each of its attends
    part.fp32_output = true;
    return kernel_.supports(part, direction, device);
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    return plan_until(problem, device, Direction::kBackward);
  }
  std::unique_ptr<Plan> plan_forward(const Problem& problem, const Device& device) const override {
    return plan_until(problem, device, Direction::kForward);
  }

 private:
  std::unique_ptr<Plan> plan_until(const Problem& problem, const Device& device, Direction until) const {
    if (options_.process == nullptr) return std::make_unique<SpreadPlan>(kernel_, options_, problem, until);
    return process_plan(kernel_, options_, problem, device, until);
  }

  const Kernel& kernel_;
  const ParallelOptions options_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<Kernel> parallel_kernel(const Kernel& kernel, ParallelOptions options) {
  LONGSPAN_CHECK(options.strategy != nullptr &&
                     (options.process != nullptr || (!options.devices.empty() && options.communicators)),
                 "a strategy, and devices and communicators, or this process's end of a group, are needed");
  return std::make_unique<SpreadKernel>(kernel, std::move(options));
}

}  // namespace longspan
