// Context parallelism for a caller who has tensors and a group: a schedule, an executor, and names for both.
#include "longspan/parallel.h"

#include "api/find_kernel.h"
#include "api/option_text.h"
#include "base/error.h"
#include "comm/launch.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "cp/execute/executor.h"
#include "cp/schedule/ranges.h"
#include "cp/strategies/strategy.h"

namespace longspan {
namespace {

std::vector<Group> groups_of(std::vector<std::unique_ptr<Communicator>> ends) {
  std::vector<Group> groups;
  groups.reserve(ends.size());
  for (std::unique_ptr<Communicator>& end : ends) groups.emplace_back(std::move(end));
  return groups;
}

Topology topology_of(const Group& group, int nodes) {
  LONGSPAN_CHECK_INPUT(nodes >= 1 && group.size() % nodes == 0,
                       "{} nodes for {} ranks: must be at least 1 and divide the ranks", nodes, group.size());
  return {nodes, group.size() / nodes};
}

Schedule scheduled(const Problem& problem, const ParallelConfig& config, const Group& group) {
  problem.check();
  const Strategy& strategy = strategy_from_name(config.strategy);
  const Topology topology = topology_of(group, config.nodes);
  StrategyOptions options;
  for (const auto& [name, text] : config.options)
    set_from_text(options, strategy.options, strategy.name, "", name, text);
  const Support support = strategy.supports(problem, topology, options);
  if (!support) {
    throw Error(ErrorKind::kUnsupported, fmt::format("{} cannot do this: {}", strategy.name, support.reason),
                __FILE__, __LINE__, "strategy.supports(problem)");
  }
  Schedule schedule = strategy.schedule(problem, topology, options);
  check(schedule, problem);
  return schedule;
}

}  // namespace

Group::Group(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {
  LONGSPAN_CHECK_INPUT(communicator_ != nullptr, "a group without a communicator");
}

std::vector<Group> Group::threads(int ranks, std::chrono::milliseconds limit) {
  LONGSPAN_CHECK_INPUT(ranks >= 1, "{} ranks: must be at least 1", ranks);
  return groups_of(thread_communicators(ranks, limit));
}

std::vector<Group> Group::gpus(std::span<const Device> devices, std::chrono::milliseconds limit) {
  return groups_of(nccl_communicators(devices, limit));
}

Group Group::processes(const Device& device, std::chrono::milliseconds limit) {
  const std::optional<Launch> launch = launch_from_environment();
  LONGSPAN_CHECK_INPUT(
      launch.has_value(),
      "no launcher started this process: use torchrun, srun or mpirun, which set the variables "
      "that say its rank");
  return Group(nccl_communicator(*launch, device, limit));
}

int Group::rank() const {
  return communicator_->rank();
}

int Group::size() const {
  return communicator_->size();
}

void Group::fail(const std::string& reason) {
  communicator_->fail(reason);
}

void run_ranks(std::span<const Group> ends, const std::function<void(const Group&)>& body) {
  std::vector<Communicator*> communicators;
  for (const Group& end : ends) communicators.push_back(&end.communicator());
  run_on_threads(communicators, [&](Communicator& mine) {
    for (const Group& end : ends) {
      if (&end.communicator() == &mine) body(end);
    }
  });
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) names.emplace_back(strategy.name);
  return names;
}

class ParallelAttention::Impl {
 public:
  Impl(const Problem& problem, const ParallelConfig& config, const Group& group, const Device& device,
       Direction until)
      : group_(group),
        schedule_(scheduled(problem, config, group)),
        executor_(schedule_, problem, find_kernel(problem, device, until, config.kernel), device,
                  group.communicator(), until) {}

  const Ranges& tokens() const { return schedule_.owned[static_cast<size_t>(group_.rank())]; }
  Executor& executor() { return executor_; }

 private:
  Group group_;  // outlives the executor
  Schedule schedule_;
  Executor executor_;
};

ParallelAttention::ParallelAttention(const Problem& problem, const ParallelConfig& config, const Group& group,
                                     const Device& device, Direction until)
    : impl_(std::make_unique<Impl>(problem, config, group, device, until)) {}
ParallelAttention::~ParallelAttention() = default;
ParallelAttention::ParallelAttention(ParallelAttention&&) noexcept = default;
ParallelAttention& ParallelAttention::operator=(ParallelAttention&&) noexcept = default;

const std::vector<Range>& ParallelAttention::tokens() const {
  return impl_->tokens();
}

int64_t ParallelAttention::token_count() const {
  return count(impl_->tokens());
}

void ParallelAttention::forward(const ForwardArgs& args, Stream stream) {
  impl_->executor().forward(args, stream);
}

void ParallelAttention::backward(const BackwardArgs& args, Stream stream) {
  impl_->executor().backward(args, stream);
}

void ParallelAttention::finish(Stream stream) {
  impl_->executor().finish(stream);
}

}  // namespace longspan
