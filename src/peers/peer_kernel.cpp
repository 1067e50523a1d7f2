#include "peers/peer_kernel.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "peers/peers_folder.h"
#include "peers/shared_masks.h"
#include "peers/shared_tensors.h"
#include "peers/worker_process.h"
#ifdef LONGSPAN_WITH_CUDA
#include "base/cuda/cuda.h"
#endif

namespace longspan {
namespace {

using peers::Json;
using peers::WorkerProcess;

// A worker writes this multiple of the L2's size before a cold sample, as the runner's own stopwatch does.
constexpr size_t kFlushes = 2;

Json problem_json(const Problem& p, bool backward) {
  return {{"tokens_q", p.tokens_q},     {"tokens_kv", p.tokens_kv}, {"heads_q", p.heads_q},
          {"heads_kv", p.heads_kv},     {"head_dim", p.head_dim},   {"dtype", name_of(p.dtype)},
          {"scale", p.softmax_scale()}, {"backward", backward},     {"deterministic", p.deterministic}};
}

// Throws the error that a worker answered, with its text.
[[noreturn]] void throw_answer(const Json& answer) {
  const std::string what = answer.value("kind", "");
  const ErrorKind kind = what == "memory"        ? ErrorKind::kOutOfMemory
                         : what == "unsupported" ? ErrorKind::kUnsupported
                                                 : ErrorKind::kPeer;
  throw Error(kind, answer.value("reason", "the worker gave no reason"), __FILE__, __LINE__, "worker");
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
        plan_bytes_(planned.value("plan_bytes", size_t{0})),
        settings_(planned.value("settings", "")),
        plan_s_(planned.value("plan_s", 0.0)),
        compile_s_(planned.value("compile_s", 0.0)),
        drift_keys_(planned.value("drift_keys", int64_t{0})) {}

  ~PeerPlan() override {
    try {
      session_->ask({{"op", "drop"}, {"id", id_}});
    } catch (...) {  // the worker has died, so its plan is gone
    }
  }
  PeerPlan(const PeerPlan&) = delete;
  PeerPlan& operator=(const PeerPlan&) = delete;

  size_t workspace_bytes(Direction) const override { return 0; }  // the worker has its own
  size_t plan_bytes() const override { return plan_bytes_; }
  SelfTimed* self_timed() override { return this; }
  PlanNotes notes() const override { return {settings_, session_->versions, compile_s_, drift_keys_}; }

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
    return session_
        ->ask({{"op", "time"},
               {"id", id_},
               {"direction", name_of(direction)},
               {"cold", cold_cache},
               {"count", count}},
              meanwhile)
        .at("times_s")
        .get<std::vector<double>>();
  }

  double plan_s() const override { return plan_s_; }

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
    const Json answer = session_->ask({{"op", "run"}, {"id", id_}, {"direction", name_of(direction)}});
    shared_->fetch_results();
    peak_bytes_[static_cast<size_t>(direction)] = answer.value("peak_bytes", size_t{0});
    compile_s_ = answer.value("compile_s", 0.0);
  }

  std::shared_ptr<Session> session_;
  Problem problem_;
  Device device_;
  int64_t id_;
  size_t plan_bytes_;
  std::string settings_;
  double plan_s_, compile_s_;
  int64_t drift_keys_;
  std::array<size_t, 2> peak_bytes_{};
  std::unique_ptr<peers::SharedTensors> shared_;
};

class PeerKernel final : public Kernel {
 public:
  explicit PeerKernel(peers::PeerFile file) : file_(std::move(file)) {}

  std::string_view name() const override { return file_.name; }
  std::string_view description() const override { return file_.description; }
  DeviceKind device_kind() const override { return file_.device; }

  // Asks the adapter, since only it knows which masks it can express.
  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    if (device.kind != file_.device)
      return {file_.device == DeviceKind::kCuda ? "needs a CUDA device" : "runs on the CPU"};
    const bool backward = direction == Direction::kBackward;
    if (backward && !file_.backward) return {"has no backward pass"};
    if (problem.fp32_output) return {"returns results in the dtype of its inputs only"};
    const std::lock_guard lock(mutex_);
    if (session_ == nullptr || adopted().contains(file_.name)) session_ = open(device);
    if (session_->process == nullptr) return {session_->reason, true};
    const Json answer = session_->process->ask(session_->request("check", problem, backward, 0));
    if (answer["ok"].get<bool>()) {
      session_->checked = problem.masks;
      session_->backward = backward;
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
    // A plan covers the passes that supports() was asked about.
    const bool backward = file_.backward && (session_->checked != problem.masks || session_->backward);
    const int64_t id = ++session_->plans;
    const Json planned = session_->ask(session_->request("plan", problem, backward, id));
    return std::make_unique<PeerPlan>(session_, problem, device, id, planned);
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
    if (!answer["ok"].get<bool>()) {
      if (answer.value("kind", "") != "unsupported") throw_answer(answer);
      session.reason = answer.value("reason", "the worker gave no reason");
      return false;
    }
    session.process = std::move(process);
    session.versions = answer.value("versions", session.versions);
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
