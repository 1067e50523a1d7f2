#include "cp/parallel_kernel.h"

#include <algorithm>
#include <optional>

#include "base/buffer.h"
#include "base/error.h"
#include "cp/crew.h"
#include "cp/device_clock.h"

namespace longspan {
namespace {

// A rank's own tensors: its tokens, packed, all heads.
struct RankTensors {
  RankTensors(const Problem& p, const Ranges& owned, const Device& device)
      : ranges(owned), kind(device.kind) {
    const int64_t tokens = count(owned);
    const auto make = [&](int64_t heads, int64_t head_dim, DType dtype) {
      TensorView view = TensorView::contiguous(nullptr, dtype, tokens, heads, head_dim);
      buffers.emplace_back(std::max<size_t>(view.bytes(), 256), device);
      view.data = buffers.back().data();
      return view;
    };
    q = make(p.heads_q, p.head_dim, p.dtype);
    k = make(p.heads_kv, p.head_dim, p.dtype);
    v = make(p.heads_kv, p.head_dim, p.dtype);
    o = make(p.heads_q, p.head_dim, p.dtype);
    lse = static_cast<float*>(make(p.heads_q, 1, DType::kF32).data);
  }

  void add_gradients(const Problem& p, const Device& device) {
    if (dq.data != nullptr) return;
    const auto make = [&](int64_t heads) {
      TensorView view = TensorView::contiguous(nullptr, p.dtype, q.tokens, heads, p.head_dim);
      buffers.emplace_back(std::max<size_t>(view.bytes(), 256), device);
      view.data = buffers.back().data();
      return view;
    };
    dout = make(p.heads_q);
    dq = make(p.heads_q);
    dk = make(p.heads_kv);
    dv = make(p.heads_kv);
  }

  ForwardArgs forward() const { return {q, k, v, o, lse, nullptr}; }
  BackwardArgs backward() const { return {q, k, v, o, dout, lse, dq, dk, dv, nullptr}; }

  Ranges ranges;
  DeviceKind kind;
  std::vector<Buffer> buffers;
  TensorView q, k, v, o, dout, dq, dk, dv;
  float* lse = nullptr;
};

// Between rows of a whole tensor and a rank's packed ones.
enum class Way { kToRank, kToWhole };

void copy_rows_of(const TensorView& whole, const TensorView& part, const RankTensors& rank, Way way) {
  const size_t row_bytes = static_cast<size_t>(whole.heads * whole.head_dim) * size_of(whole.dtype);
  LONGSPAN_CHECK(whole.token_stride == whole.heads * whole.head_dim && whole.head_stride == whole.head_dim,
                 "whole tensors are dense");
  LONGSPAN_CHECK(whole.dtype == part.dtype, "whole tensors of {}, ranks' of {}", name_of(whole.dtype),
                 name_of(part.dtype));
  size_t at = 0;
  for (const Range& range : rank.ranges) {
    const size_t bytes = static_cast<size_t>(range.size()) * row_bytes;
    char* in_whole = static_cast<char*>(whole.data) + static_cast<size_t>(range.begin) * row_bytes;
    char* in_part = static_cast<char*>(part.data) + at;
    if (bytes > 0) {
      way == Way::kToRank ? copy_bytes(in_part, rank.kind, in_whole, rank.kind, bytes)
                          : copy_bytes(in_whole, rank.kind, in_part, rank.kind, bytes);
    }
    at += bytes;
  }
}

// lse is [heads, tokens].
void lse_to_whole(float* whole, int64_t tokens, const RankTensors& rank) {
  constexpr size_t kBytes = sizeof(float);
  int64_t at = 0;
  for (const Range& range : rank.ranges) {
    copy_rows(whole + range.begin, rank.kind, static_cast<size_t>(tokens) * kBytes, rank.lse + at, rank.kind,
              static_cast<size_t>(rank.q.tokens) * kBytes, static_cast<size_t>(range.size()) * kBytes,
              static_cast<size_t>(rank.q.heads));
    at += range.size();
  }
}

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
    // Streams and plans belong to the threads that use them: their device is chosen there.
    crew_.run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      clocks_[rank] = DeviceClock::make(devices_[rank]);
      tensors_[rank].emplace(problem_, schedule_.owned[rank], devices_[rank]);
      executors_[rank] =
          std::make_unique<Executor>(schedule_, problem_, kernel, devices_[rank], communicator, until);
    });
  }

  ~SpreadPlan() override {
    // What lives on a rank's device goes where it came from.
    try {
      crew_.run([&](Communicator& communicator) {
        const auto rank = static_cast<size_t>(communicator.rank());
        executors_[rank].reset();
        tensors_[rank].reset();
        clocks_[rank].reset();
      });
    } catch (const std::exception&) {  // the group has failed before
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
      take_inputs(*tensors_[rank], args.q, args.k, args.v);
      pass(rank, Direction::kForward);
      copy_rows_of(args.o, tensors_[rank]->o, *tensors_[rank], Way::kToWhole);
      if (args.lse != nullptr) lse_to_whole(args.lse, problem_.tokens_q, *tensors_[rank]);
    });
  }

  // The ranks' forward pass runs again: they need of it what the whole tensors do not say.
  void backward(const BackwardArgs& args, Stream) override {
    synchronize_devices();
    crew_.run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      RankTensors& t = *tensors_[rank];
      t.add_gradients(problem_, devices_[rank]);
      take_inputs(t, args.q, args.k, args.v);
      copy_rows_of(args.dout, t.dout, t, Way::kToRank);
      pass(rank, Direction::kForward);
      pass(rank, Direction::kBackward);
      copy_rows_of(args.dq, t.dq, t, Way::kToWhole);
      copy_rows_of(args.dk, t.dk, t, Way::kToWhole);
      copy_rows_of(args.dv, t.dv, t, Way::kToWhole);
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
    for (int rank = 0; rank < options.topology.ranks(); ++rank)
      devices.push_back(options.devices[static_cast<size_t>(rank) % options.devices.size()]);
    return devices;
  }

  // The caller's tensors may still be being written in a stream of the caller's.
  void synchronize_devices() const {
    if (devices_.front().kind != DeviceKind::kCpu) DeviceClock::make(devices_.front())->synchronize_device();
  }

  static void take_inputs(RankTensors& t, const TensorView& q, const TensorView& k, const TensorView& v) {
    copy_rows_of(q, t.q, t, Way::kToRank);
    copy_rows_of(k, t.k, t, Way::kToRank);
    copy_rows_of(v, t.v, t, Way::kToRank);
  }

  // Where a group is given, all of its ranks' GPUs begin once all have queued their parts: as in training, no
  // launch is waited for.
  RankPass pass(size_t rank, Direction direction, Communicator* together = nullptr) {
    DeviceClock& clock = *clocks_[rank];
    clock.reset();
    if (together != nullptr) clock.hold();
    const int begin = clock.mark(clock.stream());
    if (direction == Direction::kForward) {
      executors_[rank]->forward(tensors_[rank]->forward(), clock.stream());
    } else {
      executors_[rank]->backward(tensors_[rank]->backward(), clock.stream());
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
  bool queue_ = true;  // launches before a pass begins, as long as nothing in it waits for the device
  Crew crew_;          // first to go: its threads use the rest
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

  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (problem.tokens_q != problem.tokens_kv) {
      return {fmt::format("needs as many keys as rows to deal them to ranks, not {} and {}",
                          problem.tokens_kv, problem.tokens_q)};
    }
    if (problem.fp32_output) return {"gives results in the tensors' own dtype, not in fp32"};
    if (Support support = options_.strategy->supports(problem, options_.topology, options_.options); !support)
      return {fmt::format("{} {}", options_.strategy->name, support.reason)};
    Problem part = problem;  // as the executor will ask; it asks again for each of its own
    part.fp32_output = true;
    return kernel_.supports(part, direction, device);
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device&) const override {
    return std::make_unique<SpreadPlan>(kernel_, options_, problem, Direction::kBackward);
  }
  std::unique_ptr<Plan> plan_forward(const Problem& problem, const Device&) const override {
    return std::make_unique<SpreadPlan>(kernel_, options_, problem, Direction::kForward);
  }

 private:
  const Kernel& kernel_;
  const ParallelOptions options_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<Kernel> parallel_kernel(const Kernel& kernel, ParallelOptions options) {
  LONGSPAN_CHECK(options.strategy != nullptr && !options.devices.empty() && options.communicators,
                 "a strategy, devices and communicators are needed");
  return std::make_unique<SpreadKernel>(kernel, std::move(options));
}

}  // namespace longspan
