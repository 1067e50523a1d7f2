#include "planned.h"

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

}  // namespace

void Planned::run(const Call& call, Stream stream) {
  if (!problem.same_launches || device.kind != DeviceKind::kCuda) return call(*plan, stream);
  const cuda::CallerKeepsCaptured kept;
  cuda::CapturedKernels kernels = cuda::capture_kernels(stream, [&] { call(*plan, stream); });
  if (kernels.graph == nullptr) return;
  const std::scoped_lock lock(mutex);
  captured.push_back({call, std::move(kernels)});
}

void follow(const std::shared_ptr<Planned>& plan, const std::shared_ptr<Planned>& old, void* graph,
            void* ready, Stream stream) {
  LONGSPAN_CHECK_INPUT(plan != old && plan->problem.same_launches && old->problem.same_launches,
                       "a graph follows another plan only if both were made for that");
  const cuda::CallerKeepsCaptured kept;
  const std::scoped_lock lock(plan->mutex, old->mutex);
  const auto in_graph = [&](const Planned::Captured& each) { return each.kernels.graph == graph; };
  std::vector<std::pair<const Planned::Captured*, std::unique_ptr<cuda::RecordedKernels>>> changes;
  for (const Planned::Captured& each : old->captured) {
    if (!in_graph(each)) continue;
    changes.emplace_back(&each, std::make_unique<cuda::RecordedKernels>(plan->device, [&](Stream recorded) {
      each.call(*plan->plan, recorded);
    }));
    if (!changes.back().second->fit(each.kernels))
      throw Error(ErrorKind::kUnsupported,
                  "this mask needs other kernels than the graph has: capture it again", __FILE__, __LINE__,
                  "");
  }
  LONGSPAN_CHECK_INPUT(!changes.empty(), "the graph has captured no call of this plan");
  for (const auto& [each, kernels] : changes) {
    kernels->replace(each->kernels, static_cast<cudaGraphExec_t>(ready));
    plan->captured.push_back(*each);
  }
  std::erase_if(old->captured, in_graph);
  static auto* const retired = new Retired;  // never destroyed: at exit the driver may be gone first
  retired->add(old, stream);
}
#else
void Planned::run(const Call& call, Stream stream) {
  call(*plan, stream);
}

void follow(const std::shared_ptr<Planned>&, const std::shared_ptr<Planned>&, void*, void*, Stream) {
  throw Error(ErrorKind::kUnsupported, "this build has no CUDA graphs", __FILE__, __LINE__, "");
}
#endif

int64_t Plans::add(std::shared_ptr<Planned> plan) {
  const std::unique_lock lock(mutex_);
  plans_.emplace(++last_, std::move(plan));
  return last_;
}

std::shared_ptr<Planned> Plans::find(int64_t number) const {
  const std::shared_lock lock(mutex_);
  const auto found = plans_.find(number);
  LONGSPAN_CHECK_INPUT(found != plans_.end(), "plan {} does not exist, or not any more", number);
  return found->second;
}

void Plans::remove(int64_t number) {
  std::shared_ptr<Planned> plan;  // destroyed outside of the lock
  const std::unique_lock lock(mutex_);
  const auto found = plans_.find(number);
  if (found == plans_.end()) return;
  plan = std::move(found->second);
  plans_.erase(found);
#ifdef LONGSPAN_WITH_CUDA
  if (!plan->captured.empty()) in_graphs_.push_back(std::move(plan));
#endif
}

// Never destroyed: at exit, objects of Python may still refer to plans.
Plans& plans() {
  static auto* const all = new Plans;
  return *all;
}

}  // namespace longspan::python
