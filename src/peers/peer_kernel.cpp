#include "peers/peer_kernel.h"

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "peers/peers_folder.h"
#include "peers/shared_masks.h"
#include "peers/shared_tensors.h"
#include "peers/worker_answer.h"
#include "peers/worker_process.h"
#ifdef LONGSPAN_WITH_CUDA
#include "base/cuda/cuda.h"
#endif

namespace longspan {
namespace {

using peers::Bounds, peers::Json;
using peers::WorkerProcess;

// A worker writes this multiple of the L2's size before a cold sample, as the runner's own stopwatch does.
constexpr size_t kFlushes = 2;

Json problem_json(const Problem& p, bool backward) {
  Json json = {{"tokens_q", p.tokens_q},          {"tokens_kv", p.tokens_kv},   {"heads_q", p.heads_q},
               {"heads_kv", p.heads_kv},          {"head_dim", p.head_dim},     {"head_dim_v", p.dim_v()},
               {"dtype", name_of(p.dtype)},       {"scale", p.softmax_scale()}, {"backward", backward},
               {"deterministic", p.deterministic}};
  if (!p.sinks.empty()) json["sinks"] = p.sinks;
  return json;
}

// Workers handed to this process for the next case, by kernel; null: the kernel starts its own.
std::map<std::string, std::unique_ptr<WorkerProcess>, std::less<>>& adopted() {
  static std::map<std::string, std::unique_ptr<WorkerProcess>, std::less<>> workers;
  return workers;
}

// A worker with its adapter loaded, and the problem that it planned last.
struct Session {
  std::unique_ptr<WorkerProcess> process;
  std::string reason;  // why there is no worker
  std::map<std::string, std::string> versions;
  std::shared_ptr<const HeadMasks> masks;  // of the last problem
  std::unique_ptr<peers::SharedMasks> shared_masks;
  std::shared_ptr<const HeadMasks> checked;  // the masks that supports() last accepted
  bool backward = false;                     // whether it accepted them for the backward pass
  int64_t plans = 0;                         // plans made so far; also the id of the last one
  size_t device_bytes = 0;                   // memory of the device

  Json request(const char* op, const Problem& problem, bool backward_too, int64_t id) {
    if (shared_masks == nullptr || masks != problem.masks) {
      masks = problem.masks;
      shared_masks = std::make_unique<peers::SharedMasks>(*masks);
    }
    return {{"op", op},
            {"id", id},
            {"problem", problem_json(problem, backward_too)},
            {"masks", shared_masks->json()}};
  }

  // Throws the error that the worker answered, if any. The bounds are what the answer may claim.
  std::pair<Json, Bounds> ask(const Json& request, const std::function<void()>& meanwhile = {}) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    Json answer = process->ask(request, meanwhile);
    const double wall_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (const auto refusal = peers::refusal_of(answer))
      throw Error(refusal->kind, refusal->reason, __FILE__, __LINE__, "worker");
    const Bounds bounds{wall_s, device_bytes};
    return {std::move(answer), bounds};
  }
};

class PeerPlan final : public Plan, public SelfTimed {
 public:
  PeerPlan(std::shared_ptr<Session> session, const Problem& problem, const Device& device, int64_t id,
           const std::pair<Json, Bounds>& answer)
      : session_(std::move(session)),
        problem_(problem),
        device_(device),
        id_(id),
        planned_(peers::planned_of(answer.first, answer.second)),
        wall_s_(answer.second.wall_s) {}

  ~PeerPlan() override {
    try {
      session_->ask({{"op", "drop"}, {"id", id_}});
    } catch (...) {  // the worker has died, so its plan is gone
    }
  }
  PeerPlan(const PeerPlan&) = delete;
  PeerPlan& operator=(const PeerPlan&) = delete;

  size_t workspace_bytes(Direction) const override { return 0; }  // the worker has its own
  size_t plan_bytes() const override { return planned_.plan_bytes; }
  SelfTimed* self_timed() override { return this; }
  PlanNotes notes() const override {
    return {planned_.settings, session_->versions, planned_.compile_s, planned_.drift_keys};
  }

  void forward(const ForwardArgs& args, Stream stream) override {
    const TensorView lse =
        TensorView::contiguous(args.lse, DType::kF32, problem_.heads_q, problem_.tokens_q, 1);
    run(Direction::kForward,
        {{"q", args.q, false},
         {"k", args.k, false},
         {"v", args.v, false},
         {"o", args.o, true},
         {"lse", lse, true}},
        stream);
  }

  // The worker runs its own forward pass first, since a framework passes more than o and lse from one pass to
  // the other.
  void backward(const BackwardArgs& args, Stream stream) override {
    run(Direction::kBackward,
        {{"q", args.q, false},
         {"k", args.k, false},
         {"v", args.v, false},
         {"dout", args.dout, false},
         {"dq", args.dq, true},
         {"dk", args.dk, true},
         {"dv", args.dv, true}},
        stream);
  }

  std::vector<double> times_s(Direction direction, bool cold_cache, int64_t count,
                              const std::function<void()>& meanwhile) override {
    return time(direction, cold_cache, count, false, meanwhile);
  }

  void time_next_run(bool cold_cache) override { next_is_timed_ = cold_cache; }

  double plan_s() const override { return planned_.plan_s; }

  size_t peak_bytes(Direction direction) const override {
    return peak_bytes_[static_cast<size_t>(direction)];
  }

 private:
  void run(Direction direction, const std::vector<peers::SharedTensors::Named>& tensors, Stream stream) {
#ifdef LONGSPAN_WITH_CUDA
    // Inputs must be complete before another process reads them.
    if (device_.kind == DeviceKind::kCuda) cuda::synchronize(stream);
#else
    static_cast<void>(stream);
#endif
    // Kept, since the worker may later time itself on these tensors.
    shared_ = std::make_unique<peers::SharedTensors>(tensors, device_.kind);
    session_->ask({{"op", "bind"}, {"tensors", shared_->json()}});
    written_bytes_ = 0;
    for (const peers::SharedTensors::Named& tensor : tensors)
      written_bytes_ += tensor.result ? tensor.tensor.bytes() : 0;
    if (const auto cold_cache = std::exchange(next_is_timed_, std::nullopt)) {
      time(direction, *cold_cache, 1, true, {});
      shared_->fetch_results();
      return;
    }
    auto [answer, bounds] = session_->ask({{"op", "run"}, {"id", id_}, {"direction", name_of(direction)}});
    shared_->fetch_results();
    bounds.wall_s = wall_s_ += bounds.wall_s;  // compile_s is of all runs so far
    const peers::Ran ran = peers::ran_of(answer, bounds);
    peak_bytes_[static_cast<size_t>(direction)] = ran.peak_bytes;
    planned_.compile_s = ran.compile_s;
  }

  std::vector<double> time(Direction direction, bool cold_cache, int64_t count, bool store,
                           const std::function<void()>& meanwhile) {
    const auto [answer, bounds] = session_->ask({{"op", "time"},
                                                 {"id", id_},
                                                 {"direction", name_of(direction)},
                                                 {"cold", cold_cache},
                                                 {"count", count},
                                                 {"store", store}},
                                                meanwhile);
    return peers::times_of(answer, count, written_bytes_, bounds);
  }

  std::shared_ptr<Session> session_;
  Problem problem_;
  Device device_;
  int64_t id_;
  peers::Planned planned_;
  double wall_s_;                      // of the requests that compile_s may include
  size_t written_bytes_ = 0;           // by a run on the bound tensors
  std::optional<bool> next_is_timed_;  // and whether with a cold cache
  std::array<size_t, 2> peak_bytes_{};
  std::unique_ptr<peers::SharedTensors> shared_;
};

class PeerKernel final : public Kernel {
 public:
  explicit PeerKernel(peers::PeerFile file) : file_(std::move(file)) {}

  std::string_view name() const override { return file_.name; }
  std::string_view description() const override { return file_.description; }
  DeviceKind device_kind() const override { return file_.device; }

  bool takes_sinks() const override { return true; }  // if its adapter does; else that says so

  // Asks the adapter, since only it knows which masks it can express.
  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (device.kind != file_.device)
      return {file_.device == DeviceKind::kCuda ? "needs a CUDA device" : "runs on the CPU"};
    const bool backward = direction == Direction::kBackward;
    if (backward && !file_.backward) return {"has no backward pass"};
    if (problem.fp32_output) return {"returns results in the dtype of its inputs only"};
    if (problem.lse_gradient) return {"is given no gradient of lse"};
    if (std::string reason = lacking({.head_dim_v = true, .sinks = true}, problem); !reason.empty())
      return {reason};
    const std::lock_guard lock(mutex_);
    const bool lost = session_ != nullptr && session_->process != nullptr && session_->process->broken();
    if (session_ == nullptr || lost || adopted().contains(file_.name)) session_ = open(device);
    if (session_->process == nullptr) return {session_->reason, true};
    try {
      session_->ask(session_->request("check", problem, backward, 0));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kUnsupported) return {error.what()};
      throw;
    }
    session_->checked = problem.masks;
    session_->backward = backward;
    return {};
  }

  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    const std::lock_guard lock(mutex_);
    if (session_ == nullptr) session_ = open(device);
    LONGSPAN_CHECK_INPUT(session_->process != nullptr, "{}", session_->reason);
    // A plan covers the passes that supports() was asked about.
    const bool backward = file_.backward && (session_->checked != problem.masks || session_->backward);
    const int64_t id = ++session_->plans;
    return std::make_unique<PeerPlan>(session_, problem, device, id,
                                      session_->ask(session_->request("plan", problem, backward, id)));
  }

 private:
  // Returns the worker that the runner keeps for this process's case. Otherwise starts one with the first
  // interpreter that has the adapter's framework.
  std::shared_ptr<Session> open(const Device& device) const {
    auto session = std::make_shared<Session>();
    if (const auto kept = adopted().find(file_.name); kept != adopted().end()) {
      auto process = std::move(kept->second);
      adopted().erase(kept);
      if (process != nullptr && greet(*session, std::move(process), device)) return session;
    }
    const peers::PeersFolder folder = peers::peers_folder();
    if (!folder.refusal.empty()) {
      session->reason = folder.refusal;
      return session;
    }
    for (const std::string& python : peers::interpreters()) {
      std::unique_ptr<WorkerProcess> process;
      try {
        process = std::make_unique<WorkerProcess>(python, folder.path, file_.name);
      } catch (const Error& error) {
        session->reason = error.what();
        continue;
      }
      if (greet(*session, std::move(process), device)) break;
    }
    return session;
  }

  static bool greet(Session& session, std::unique_ptr<WorkerProcess> process, const Device& device) {
    const Json answer = process->ask(
        {{"op", "hello"}, {"device", device.index}, {"flush_bytes", kFlushes * device.cache_bytes}});
    if (const auto refusal = peers::refusal_of(answer)) {
      if (refusal->kind != ErrorKind::kUnsupported)
        throw Error(refusal->kind, refusal->reason, __FILE__, __LINE__, "worker");
      session.reason = refusal->reason;
      return false;
    }
    session.process = std::move(process);
    session.versions = peers::versions_of(answer);
    session.device_bytes = device.memory_bytes;
    session.reason.clear();
    return true;
  }

  const peers::PeerFile file_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Session> session_;
};

}  // namespace

std::unique_ptr<Kernel> make_peer_kernel(peers::PeerFile file) {
  return std::make_unique<PeerKernel>(std::move(file));
}

void adopt_peer_worker(std::string_view kernel, int requests, int answers) {
  adopted()[std::string(kernel)] = std::make_unique<WorkerProcess>(std::string(kernel), requests, answers);
}

void forget_peer_worker(std::string_view kernel) {
  adopted()[std::string(kernel)] = nullptr;
}

}  // namespace longspan
