#include "cp/execute/process_plan.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cp/execute/device_clock.h"
#include "cp/execute/rank_tensors.h"

namespace longspan {
namespace {

class ProcessPlan : public ParallelPlan {
 public:
  ProcessPlan(const Kernel& kernel, const ParallelOptions& options, const Problem& problem,
              const Device& device, Direction until)
      : problem_(problem),
        schedule_(options.strategy->schedule(problem, options.topology, options.options)),
        device_(device),
        group_(*options.process),
        clock_(DeviceClock::make(device)),
        tensors_(problem, checked(schedule_, problem).owned[static_cast<size_t>(group_.rank())], device),
        executor_(schedule_, problem_, kernel, device, group_, until) {
    tensors_.kept = Buffer(executor_.kept_bytes(), device);
  }

  size_t workspace_bytes(Direction) const override { return 0; }
  size_t plan_bytes() const override { return executor_.plan_bytes(); }
  const Schedule& schedule() const override { return schedule_; }

  void forward(const ForwardArgs& args, Stream) override {
    clock_->synchronize_device();
    tensors_.take_inputs(args.q, args.k, args.v);
    pass(Direction::kForward);
    gather(tensors_.o, args.o);
    if (args.lse != nullptr) gather_lse(args.lse);
  }

  // Reruns the forward pass: the backward pass needs data that the whole tensors do not hold.
  void backward(const BackwardArgs& args, Stream) override {
    clock_->synchronize_device();
    tensors_.add_gradients(problem_, device_);
    tensors_.take_inputs(args.q, args.k, args.v);
    tensors_.take_gradients(args.dout, args.dlse);
    pass(Direction::kForward);
    pass(Direction::kBackward);
    gather(tensors_.dq, args.dq);
    gather(tensors_.dk, args.dk);
    gather(tensors_.dv, args.dv);
  }

  std::vector<RankPass> run(Direction direction, bool cold_cache) override {
    if (direction == Direction::kBackward) {
      LONGSPAN_CHECK(tensors_.dq.data != nullptr, "no backward pass has run yet");
      pass(Direction::kForward);
    }
    if (cold_cache) clock_->empty_caches();
    return of_all_ranks(pass(direction, true));
  }

  std::vector<double> of_all(double mine) override {
    std::vector<double> values;
    for (const Numbers& numbers : exchange_numbers({mine})) values.push_back(numbers.front());
    return values;
  }

  std::vector<Memory> memory() const override {
    std::vector<Memory> all;
    for (const Buffer& buffer : tensors_.buffers)
      all.push_back({group_.rank(), buffer.data(), buffer.bytes()});
    return all;
  }

 private:
  using Numbers = std::array<double, 8>;

  static const Schedule& checked(const Schedule& schedule, const Problem& problem) {
    check(schedule, problem);
    return schedule;
  }

  // Times a pass from a common start of all ranks. On a GPU the start is a point in the streams: a tiny
  // exchange among all ranks, behind which the whole pass is queued.
  RankPass pass(Direction direction, bool timed = false) {
    clock_->reset();
    const Stream stream = clock_->stream();
    if (timed) {
      group_.barrier();
      if (queue_) clock_->hold();
      if (device_.kind != DeviceKind::kCpu) meet(stream);
    }
    const int begin = clock_->mark(stream);
    if (direction == Direction::kForward) {
      executor_.forward(tensors_.forward(), tensors_.kept.data(), stream);
    } else {
      executor_.backward(tensors_.backward(), tensors_.kept.data(), stream);
    }
    const int end = clock_->mark(stream);
    if (timed && queue_) clock_->let_go();
    executor_.finish(stream);
    const RankPass done{clock_->seconds(begin, end), executor_.times()};
    if (timed) queue_ = queue_ && clock_->was_held();
    return done;
  }

  void meet(Stream stream) {
    const auto ranks = static_cast<size_t>(group_.size());
    if (meeting_.data() == nullptr) meeting_ = Buffer(256 * (ranks + 1), device_);
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < group_.size(); ++peer) {
      if (peer == group_.rank()) continue;
      sends.push_back({peer, meeting_.as<char>(), 16});
      receives.push_back({peer, meeting_.as<char>() + 256 * (static_cast<size_t>(peer) + 1), 16});
    }
    group_.exchange(sends, receives, stream, Meanwhile::kWaits)->wait(stream);
  }

  const Ranges& owned(int rank) const { return schedule_.owned[static_cast<size_t>(rank)]; }

  // Each rank sends its part to all others, one part at a time to bound the memory.
  void gather(const TensorView& part, const TensorView& whole) {
    rows_to_whole(part, whole, tensors_.ranges, tensors_.kind);
    const auto bytes = static_cast<size_t>(part.heads * part.head_dim) * size_of(part.dtype);
    pass_round(part.data, bytes, [&](int source, void* data) {
      const TensorView theirs =
          TensorView::contiguous(data, part.dtype, count(owned(source)), part.heads, part.head_dim);
      rows_to_whole(theirs, whole, owned(source), tensors_.kind);
    });
  }

  void gather_lse(float* whole) {
    const int64_t heads = problem_.heads_q, tokens = problem_.tokens_q;
    lse_to_whole(tensors_.lse, whole, tokens, heads, tensors_.ranges, tensors_.kind);
    pass_round(tensors_.lse, static_cast<size_t>(heads) * sizeof(float), [&](int source, void* data) {
      lse_to_whole(static_cast<const float*>(data), whole, tokens, heads, owned(source), tensors_.kind);
    });
  }

  // Sends this rank's tokens, `bytes` each, to every other rank, and calls receive(source, data) with theirs.
  template <class Receive>
  void pass_round(void* data, size_t bytes, const Receive& receive) {
    const int ranks = group_.size(), me = group_.rank();
    for (int step = 1; step < ranks; ++step) {
      const int to = (me + step) % ranks, from = (me - step + ranks) % ranks;
      const size_t theirs = bytes * static_cast<size_t>(count(owned(from)));
      if (incoming_.bytes() < theirs) incoming_ = Buffer(std::max<size_t>(theirs, 256), device_);
      const size_t ours = bytes * static_cast<size_t>(count(tensors_.ranges));
      const Message send{to, data, ours}, take{from, incoming_.data(), theirs};
      const Stream stream = clock_->stream();
      group_.exchange({&send, 1}, {&take, 1}, stream, Meanwhile::kWaits)->wait(stream);
      group_.synchronize(stream);
      receive(from, incoming_.data());
    }
  }

  std::vector<RankPass> of_all_ranks(const RankPass& mine) {
    const PassTimes& t = mine.times;
    std::vector<RankPass> all;
    for (const Numbers& n :
         exchange_numbers({mine.time_s, t.compute_s, t.exposed_s, t.reorder_s, t.merge_s,
                           static_cast<double>(t.sent_bytes), static_cast<double>(t.peak_copy_bytes),
                           static_cast<double>(t.held_bytes)})) {
      all.push_back({n[0],
                     {n[1], n[2], n[3], n[4], static_cast<int64_t>(n[5]), static_cast<int64_t>(n[6]),
                      static_cast<int64_t>(n[7])}});
    }
    return all;
  }

  std::vector<Numbers> exchange_numbers(const Numbers& mine) {
    const auto ranks = static_cast<size_t>(group_.size());
    if (numbers_.data() == nullptr) numbers_ = Buffer((ranks + 1) * sizeof(Numbers), device_);
    auto* const send = numbers_.as<Numbers>() + ranks;
    copy_bytes(send, device_.kind, mine.data(), DeviceKind::kCpu, sizeof(Numbers));
    group_.all_gather(send, numbers_.data(), sizeof(Numbers), clock_->stream());
    group_.synchronize(clock_->stream());
    std::vector<Numbers> all(ranks);
    copy_bytes(all.data(), DeviceKind::kCpu, numbers_.data(), device_.kind, ranks * sizeof(Numbers));
    return all;
  }

  const Problem problem_;
  const Schedule schedule_;
  const Device device_;
  Communicator& group_;
  const std::unique_ptr<DeviceClock> clock_;
  RankTensors tensors_;
  Executor executor_;
  Buffer incoming_, meeting_, numbers_;
  bool queue_ = true;  // queue launches ahead, as long as nothing in a pass blocks on the device
};

}  // namespace

std::unique_ptr<ParallelPlan> process_plan(const Kernel& kernel, const ParallelOptions& options,
                                           const Problem& problem, const Device& device, Direction until) {
  LONGSPAN_CHECK_INPUT(options.process->size() == options.topology.ranks(),
                       "{} ranks are requested, but {} processes were launched", options.topology.ranks(),
                       options.process->size());
  return std::make_unique<ProcessPlan>(kernel, options, problem, device, until);
}

}  // namespace longspan
