#include "planned.h"

#include <unordered_map>
#include <utility>

#include "base/error.h"
#ifdef LONGSPAN_WITH_CUDA
#include "base/cuda/cuda.h"
#endif

namespace longspan::python {

#ifdef LONGSPAN_WITH_CUDA
namespace {

// Plans that queued launches of graphs may still run, by the events behind these launches.
class Retired {
 public:
  void add(std::shared_ptr<Planned> plan, Stream stream) {
    const cuda::OutsideCapture outside;  // another thread may be capturing
    const std::scoped_lock lock(mutex_);
    std::erase_if(plans_, [](const auto& entry) { return entry.second->reached(); });
    auto event = std::make_unique<cuda::Event>(plan->device.index, cuda::Event::Timing::kOff);
    event->record(stream);
    plans_.emplace_back(std::move(plan), std::move(event));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::shared_ptr<Planned>, std::unique_ptr<cuda::Event>>> plans_;
};

// The capture that each handle of a graph stands for, as far as plans have seen it.
class Captures {
 public:
  void add(const cuda::CapturedKernels& kernels) {
    const std::scoped_lock lock(mutex_);
    newest_[kernels.graph] = kernels.capture;
  }
  bool is_newest(const cuda::CapturedKernels& kernels) const {
    const std::scoped_lock lock(mutex_);
    const auto found = newest_.find(kernels.graph);
    return found != newest_.end() && found->second == kernels.capture;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<cudaGraph_t, unsigned long long> newest_;
};

// Never destroyed: at exit the driver may be gone first.
Retired& retired() {
  static auto* const all = new Retired;
  return *all;
}
Captures& captures() {
  static auto* const all = new Captures;
  return *all;
}

// A captured call, and the same call of another plan.
struct Change {
  Planned::Captured call;
  cudaGraphExec_t ready;
  std::unique_ptr<cuda::RecordedKernels> kernels;
};

std::unique_ptr<cuda::RecordedKernels> record(const Planned::Captured& captured, Planned& by) {
  return std::make_unique<cuda::RecordedKernels>(by.device,
                                                 [&](Stream recorded) { captured.call(*by.plan, recorded); });
}

}  // namespace

void Planned::run(const Call& call, Stream stream) {
  if (!problem.same_launches || device.kind != DeviceKind::kCuda) return call(*plan, stream);
  const cuda::CallerKeepsCaptured kept;
  cuda::CapturedKernels kernels = cuda::capture_kernels(stream, [&] { call(*plan, stream); });
  if (kernels.graph == nullptr) return;
  captures().add(kernels);
  const std::scoped_lock lock(mutex);
  captured.push_back({call, std::move(kernels)});
}

void follow(const std::shared_ptr<Planned>& plan, const std::shared_ptr<Planned>& old,
            const std::vector<Graph>& graphs, Stream stream) {
  LONGSPAN_CHECK_INPUT(plan != old && plan->problem.same_launches && old->problem.same_launches,
                       "a graph follows another plan only if both were made for that");
  if (plan->forward_bytes > old->forward_bytes || plan->backward_bytes > old->backward_bytes)
    throw Error(ErrorKind::kUnsupported,
                "this mask needs more workspace than the graph has: capture it again", __FILE__, __LINE__,
                "");
  const cuda::CallerKeepsCaptured kept;
  const std::scoped_lock lock(plan->mutex, old->mutex);
  const auto is_in = [](const Graph& graph, const Planned::Captured& each) {
    return each.kernels.graph == graph.captured && captures().is_newest(each.kernels);
  };
  std::vector<Change> changes;
  for (const Graph& graph : graphs) {
    const size_t before = changes.size();
    for (const Planned::Captured& each : old->captured) {
      if (!is_in(graph, each)) continue;
      changes.push_back({each, static_cast<cudaGraphExec_t>(graph.ready), record(each, *plan)});
      if (!changes.back().kernels->fit(each.kernels))
        throw Error(ErrorKind::kUnsupported,
                    "this mask needs other kernels than the graph has: capture it again", __FILE__, __LINE__,
                    "");
    }
    LONGSPAN_CHECK_INPUT(changes.size() > before, "a graph has captured no call of this plan");
  }
  retired().add(old, stream);
  try {
    for (const Change& change : changes) change.kernels->replace(change.call.kernels, change.ready);
  } catch (...) {
    for (const Change& change : changes)
      record(change.call, *old)->replace(change.call.kernels, change.ready);
    throw;
  }
  for (Change& change : changes) plan->captured.push_back(std::move(change.call));
  for (const Graph& graph : graphs)
    std::erase_if(old->captured, [&](const Planned::Captured& each) { return is_in(graph, each); });
}
#else
void Planned::run(const Call& call, Stream stream) {
  call(*plan, stream);
}

void follow(const std::shared_ptr<Planned>&, const std::shared_ptr<Planned>&, const std::vector<Graph>&,
            Stream) {
  throw Error(ErrorKind::kUnsupported, "this build has no CUDA graphs", __FILE__, __LINE__, "");
}
#endif

void Plans::remove(int64_t number) {
  std::shared_ptr<Planned> plan = Numbered<Planned>::remove(number);
#ifdef LONGSPAN_WITH_CUDA
  if (plan == nullptr || plan->captured.empty()) return;
  const std::scoped_lock lock(mutex_);
  in_graphs_.push_back(std::move(plan));
#endif
}

// Never destroyed: at exit, objects of Python may still refer to plans.
Plans& plans() {
  static auto* const all = new Plans;
  return *all;
}

}  // namespace longspan::python
