#include "kernels/peers/peer_kernel.h"

#include <array>
#include <memory>
#include <mutex>
#include <utility>

#include "base/cuda.h"
#include "base/error.h"
#include "kernels/peers/cuda_ipc.h"
#include "kernels/peers/worker_process.h"

namespace longspan {
namespace {

using peers::Json;
using peers::WorkerProcess;

// A worker writes this many times the size of the L2 before a cold sample, as the runner's own stopwatch
// does.
constexpr size_t kFlushes = 2;

Json bound(int64_t value, int64_t unbounded) {
  return value == unbounded ? Json() : Json(value);
}

Json mask_json(const Mask& mask) {
  Json bands = Json::array();
  for (const Band& b : mask.bands()) {
    bands.push_back(
        {b.q.begin, b.q.end, b.k.begin, b.k.end, bound(b.lo, kUnboundedBelow), bound(b.hi, kUnboundedAbove)});
  }
  return {{"rows", mask.rows()}, {"columns", mask.columns()}, {"bands", std::move(bands)}};
}

Json problem_json(const Problem& p, bool backward) {
  return {{"tokens_q", p.tokens_q},     {"tokens_kv", p.tokens_kv}, {"heads_q", p.heads_q},
          {"heads_kv", p.heads_kv},     {"head_dim", p.head_dim},   {"dtype", name_of(p.dtype)},
          {"scale", p.softmax_scale()}, {"backward", backward},     {"deterministic", p.deterministic}};
}

// The answer of a worker that could not: an Error in its words.
[[noreturn]] void throw_answer(const Json& answer) {
  const bool memory = answer.value("kind", "") == "memory";
  throw Error(memory ? ErrorKind::kOutOfMemory : ErrorKind::kInput,
              answer.value("reason", "the worker gave no reason"), __FILE__, __LINE__, "worker");
}

// A worker with its adapter loaded, and the problem that it was last asked to plan.
struct Session {
  std::unique_ptr<WorkerProcess> process;
  std::string reason;  // why there is none
  std::shared_ptr<const HeadMasks> masks;
  bool backward = false;
  int64_t plans = 0;  // planned so far: the number of the last

  Json ask(const Json& request, const std::function<void()>& meanwhile = {}) {
    Json answer = process->ask(request, meanwhile);
    if (!answer["ok"].get<bool>()) throw_answer(answer);
    return answer;
  }
};

class PeerPlan final : public Plan, public SelfTimed {
 public:
  PeerPlan(std::shared_ptr<Session> session, const Problem& problem, const Device& device, int64_t id,
           const Json& planned)
      : session_(std::move(session)),
        problem_(problem),
        device_(device),
        id_(id),
        plan_bytes_(planned.value("plan_bytes", size_t{0})) {}

  ~PeerPlan() override {
    try {
      session_->ask({{"op", "drop"}, {"id", id_}});
    } catch (const Error&) {  // the worker has died, and the plan with it
    }
  }
  PeerPlan(const PeerPlan&) = delete;
  PeerPlan& operator=(const PeerPlan&) = delete;

  size_t workspace_bytes(Direction) const override { return 0; }  // the worker's own
  size_t plan_bytes() const override { return plan_bytes_; }
  SelfTimed* self_timed() override { return this; }

  void forward(const ForwardArgs& args, Stream stream) override {
    const TensorView lse =
        TensorView::contiguous(args.lse, DType::kF32, problem_.heads_q, problem_.tokens_q, 1);
    run(Direction::kForward, {{"q", args.q}, {"k", args.k}, {"v", args.v}, {"o", args.o}, {"lse", lse}},
        stream);
  }

  // The worker runs its own forward pass first: what a framework hands from one pass to the other is not only
  // o and lse.
  void backward(const BackwardArgs& args, Stream stream) override {
    run(Direction::kBackward,
        {{"q", args.q},
         {"k", args.k},
         {"v", args.v},
         {"dout", args.dout},
         {"dq", args.dq},
         {"dk", args.dk},
         {"dv", args.dv}},
        stream);
  }

  double time_s(Direction direction, bool cold_cache, const std::function<void()>& meanwhile) override {
    return session_
        ->ask({{"op", "time"}, {"id", id_}, {"direction", name_of(direction)}, {"cold", cold_cache}},
              meanwhile)
        .at("time_s")
        .get<double>();
  }

  size_t peak_bytes(Direction direction) const override {
    return peak_bytes_[static_cast<size_t>(direction)];
  }

 private:
  using Named = std::vector<std::pair<const char*, TensorView>>;

  void run(Direction direction, const Named& tensors, Stream stream) {
    cuda::synchronize(stream);  // the inputs are written before another process reads them
    Json shared = Json::object();
    for (const auto& [name, tensor] : tensors) {
      if (tensor.elements() > 0) shared[name] = peers::shared_tensor(tensor);
    }
    session_->ask({{"op", "bind"}, {"tensors", std::move(shared)}});
    const Json answer = session_->ask({{"op", "run"}, {"id", id_}, {"direction", name_of(direction)}});
    peak_bytes_[static_cast<size_t>(direction)] = answer.value("peak_bytes", size_t{0});
  }

  std::shared_ptr<Session> session_;
  Problem problem_;
  Device device_;
  int64_t id_;
  size_t plan_bytes_;
  std::array<size_t, 2> peak_bytes_{};
};

class PeerKernel final : public Kernel {
 public:
  PeerKernel(std::string_view name, std::string_view description) : name_(name), description_(description) {}

  std::string_view name() const override { return name_; }
  std::string_view description() const override { return description_; }
  DeviceKind device_kind() const override { return DeviceKind::kCuda; }

  // Asks the adapter itself, which plans to know: only it can say which masks it can express.
  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (device.kind != DeviceKind::kCuda) return {"needs a CUDA device"};
    if (problem.fp32_output) return {"gives results in its inputs' dtype only"};
    const std::lock_guard lock(mutex_);
    if (session_ == nullptr) session_ = open(device);
    if (session_->process == nullptr) return {session_->reason};
    const int64_t id = ++session_->plans;
    const Json answer = session_->process->ask(plan_request(problem, direction == Direction::kBackward, id));
    if (answer["ok"].get<bool>()) {
      session_->ask({{"op", "drop"}, {"id", id}});
      session_->backward = direction == Direction::kBackward;
      session_->masks = problem.masks;
      return {};
    }
    if (answer.value("kind", "") == "unsupported")
      return {answer.value("reason", "the worker gave no reason")};
    throw_answer(answer);
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    const std::lock_guard lock(mutex_);
    if (session_ == nullptr) session_ = open(device);
    LONGSPAN_CHECK_INPUT(session_->process != nullptr, "{}", session_->reason);
    // A plan serves the passes that supports() was asked about.
    const bool backward = session_->masks != problem.masks || session_->backward;
    const int64_t id = ++session_->plans;
    const Json planned = session_->ask(plan_request(problem, backward, id));
    return std::make_unique<PeerPlan>(session_, problem, device, id, planned);
  }

 private:
  static Json plan_request(const Problem& problem, bool backward, int64_t id) {
    Json masks = Json::array();
    for (const Mask& mask : *problem.masks) masks.push_back(mask_json(mask));
    return {{"op", "plan"},
            {"id", id},
            {"problem", problem_json(problem, backward)},
            {"masks", std::move(masks)}};
  }

  // The first interpreter that has the adapter's framework.
  std::shared_ptr<Session> open(const Device& device) const {
    auto session = std::make_shared<Session>();
    const std::string folder = peers::worker_folder();
    if (folder.empty()) {
      session->reason = "the folder of the peers' adapters was not found; set LONGSPAN_PEERS to it";
      return session;
    }
    for (const std::string& python : peers::interpreters()) {
      try {
        auto process = std::make_unique<WorkerProcess>(python, folder, std::string(name_));
        const Json answer = process->ask(
            {{"op", "hello"}, {"device", device.index}, {"flush_bytes", kFlushes * device.cache_bytes}});
        if (answer["ok"].get<bool>()) {
          session->process = std::move(process);
          session->reason.clear();
          return session;
        }
        session->reason = answer.value("reason", "the worker gave no reason");
      } catch (const Error& error) {
        session->reason = error.what();
      }
    }
    return session;
  }

  std::string_view name_, description_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Session> session_;
};

}  // namespace

std::span<const Kernel* const> peer_kernels() {
  static const PeerKernel torch_fa2("torch-fa2",
                                    "FlashAttention-2 in PyTorch: full, causal, windows, documents");
  static const PeerKernel torch_cudnn("torch-cudnn",
                                      "cuDNN in PyTorch: full, causal; other masks as a dense bias");
  static const PeerKernel torch_efficient(
      "torch-efficient", "memory-efficient attention in PyTorch: documents; other masks as a dense bias");
  static const PeerKernel torch_math("torch-math",
                                     "PyTorch's products and softmax, scores in memory: every mask");
  static const PeerKernel flex("flex", "PyTorch's FlexAttention, compiled: every mask");
  static const PeerKernel fa2("fa2", "FlashAttention-2 (flash_attn): full, causal, windows, documents");
  static const PeerKernel fa3("fa3",
                              "FlashAttention-3 (flash_attn_interface): full, causal, windows, documents");
  static const PeerKernel fa4("fa4", "FlashAttention-4 (flash_attn.cute): full, causal, windows, documents");
  static const PeerKernel vsa("vsa", "Video Sparse Attention for Hopper (fastvideo-kernel): 64 x 64 blocks");
  static const PeerKernel vsa_triton("vsa-triton", "Video Sparse Attention in Triton: 64 x 64 blocks");
  static const Kernel* const table[] = {
      &torch_fa2, &torch_cudnn, &torch_efficient, &torch_math, &flex, &fa2, &fa3, &fa4, &vsa, &vsa_triton};
  return table;
}

}  // namespace longspan
