// Context parallelism for a caller who has tensors and a group: a schedule, an executor, and names for both.
#include "longspan/parallel.h"

#include <algorithm>
#include <optional>

#include "api/find_kernel.h"
#include "api/option_text.h"
#include "attention/arguments.h"
#include "base/error.h"
#include "base/standard_errors.h"
#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "cp/execute/buffer_pool.h"
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

Topology topology_of(int ranks, int nodes) {
  LONGSPAN_CHECK_INPUT(ranks >= 1, "{} ranks: must be at least 1", ranks);
  LONGSPAN_CHECK_INPUT(nodes >= 1 && ranks % nodes == 0,
                       "{} nodes for {} ranks: must be at least 1 and divide the ranks", nodes, ranks);
  return {nodes, ranks / nodes};
}

Schedule scheduled(const Problem& problem, const ParallelConfig& config, int ranks) {
  problem.check();
  LONGSPAN_CHECK_INPUT(!problem.fp32_output,
                       "fp32_output is set; the results of a parallel attention have the problem's dtype, {}",
                       name_of(problem.dtype));
  LONGSPAN_CHECK_INPUT(
      problem.alibi_slopes.empty(),
      "alibi_slopes are set; there is no ALiBi over ranks, whose attends know tokens by their "
      "place in a rank's share only");
  LONGSPAN_CHECK_INPUT(problem.sinks.empty(), "sinks are set; add_sinks() adds them to a rank's rows");
  LONGSPAN_CHECK_INPUT(problem.tokens_q == problem.tokens_kv,
                       "{} queries and {} keys: a rank holds both of its tokens, so there must be as many",
                       problem.tokens_q, problem.tokens_kv);
  const Strategy& strategy = strategy_from_name(config.strategy);
  const Topology topology = topology_of(ranks, config.nodes);
  StrategyOptions options;
  for (const auto& [name, text] : config.options)
    set_from_text(options, strategy.options, strategy.name, "", name, text);
  const Support support = strategy.supports(problem, topology, options);
  if (!support) {
    throw Error(ErrorKind::kUnsupported, fmt::format("{} cannot do this: {}", strategy.name, support.reason),
                __FILE__, __LINE__, "strategy.supports(problem)");
  }
  Schedule schedule = strategy.schedule(problem, topology, options, config.tokens);
  check(schedule, problem);
  return schedule;
}

}  // namespace

Group::Group(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {
  LONGSPAN_CHECK_INPUT(communicator_ != nullptr, "a group without a communicator");
}

std::vector<Group> Group::threads(int ranks, std::chrono::milliseconds limit) {
  check_wait_limit(limit);
  return standard_errors([&] { return groups_of(thread_communicators(ranks, limit)); });
}

std::vector<Group> Group::gpus(std::span<const Device> devices, std::chrono::milliseconds limit) {
  check_wait_limit(limit);
  return standard_errors([&] { return groups_of(nccl_communicators(devices, limit)); });
}

Group Group::processes(const Device& device, std::chrono::milliseconds limit) {
  check_wait_limit(limit);
  const std::optional<Launch> launch = launch_from_environment();
  LONGSPAN_CHECK_INPUT(
      launch.has_value(),
      "no launcher started this process: use torchrun, srun or mpirun, which set the variables "
      "that say its rank");
  return standard_errors([&] { return Group(nccl_communicator(*launch, device, limit)); });
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
  LONGSPAN_CHECK_INPUT(!ends.empty(), "there is no rank to run; give one end for each");
  LONGSPAN_CHECK_INPUT(body != nullptr, "there is no body to run on the {} ranks", ends.size());
  std::vector<Communicator*> communicators;
  for (const Group& end : ends) {
    Communicator* const mine = &end.communicator();
    LONGSPAN_CHECK_INPUT(std::find(communicators.begin(), communicators.end(), mine) == communicators.end(),
                         "rank {} is given twice; give each end once", mine->rank());
    communicators.push_back(mine);
  }
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

RankTokens place_tokens(const Problem& problem, const ParallelConfig& config, int ranks) {
  return standard_errors([&] { return scheduled(problem, config, ranks).owned; });
}

SharedBuffers::SharedBuffers(const Device& device)
    : scratch_(std::make_shared<Scratch>(device, BufferPool::Use::kShared)) {}

class ParallelAttention::Impl {
 public:
  Impl(const Problem& problem, const ParallelConfig& config, const Group& group, const Device& device,
       Direction until, std::shared_ptr<Scratch> scratch)
      : group_(group),
        device_(device),
        until_(until),
        schedule_(scheduled(problem, config, group.size())),
        kernel_(find_kernel(problem, device, until, config.kernel)),
        own_(problem),
        executor_(schedule_, problem, kernel_, device, group.communicator(), until, std::move(scratch),
                  Executor::Timing::kOff) {
    own_.tokens_q = own_.tokens_kv = count(tokens());
  }

  const RankTokens& rank_tokens() const { return schedule_.owned; }
  const Ranges& tokens() const { return rank_tokens()[static_cast<size_t>(group_.rank())]; }

  size_t kept_bytes() const { return executor_.kept_bytes(); }

  void forward(const ForwardArgs& args, Stream stream, std::span<std::byte> kept) {
    check(args, own_, rules(kept));
    standard_errors([&] { executor_.forward(args, kept.data(), stream); });
  }

  void backward(const BackwardArgs& args, Stream stream, std::span<const std::byte> kept) {
    LONGSPAN_CHECK_INPUT(until_ == Direction::kBackward,
                         "the attention has no backward pass; make it with Direction::kBackward");
    check(args, own_, rules(kept));
    standard_errors([&] { executor_.backward(args, kept.data(), stream); });
  }

  void finish(Stream stream) { executor_.finish(stream); }

 private:
  ArgumentRules rules(std::span<const std::byte> kept) const {
    return {.kernel = kernel_.name(),
            .workspace_bytes = 0,
            .alignment = kernel_.row_alignment(),
            .merges_parts = false,
            .over_ranks = true,
            .device = device_,
            .kept = kept,
            .kept_bytes = executor_.kept_bytes()};
  }

  Group group_;  // outlives the executor
  const Device device_;
  const Direction until_;
  Schedule schedule_;
  const Kernel& kernel_;
  Problem own_;  // with the rank's own number of tokens
  Executor executor_;
};

ParallelAttention::ParallelAttention(const Problem& problem, const ParallelConfig& config, const Group& group,
                                     const Device& device, Direction until)
    : impl_(standard_errors(
          [&] { return std::make_unique<Impl>(problem, config, group, device, until, nullptr); })) {}
ParallelAttention::ParallelAttention(const Problem& problem, const ParallelConfig& config, const Group& group,
                                     const Device& device, Direction until, const SharedBuffers& buffers)
    : impl_(standard_errors(
          [&] { return std::make_unique<Impl>(problem, config, group, device, until, buffers.scratch_); })) {}
ParallelAttention::~ParallelAttention() = default;
ParallelAttention::ParallelAttention(ParallelAttention&&) noexcept = default;
ParallelAttention& ParallelAttention::operator=(ParallelAttention&&) noexcept = default;

ParallelAttention::Impl& ParallelAttention::impl() const {
  LONGSPAN_CHECK_INPUT(impl_ != nullptr, "this attention was moved from; use the object it was moved to");
  return *impl_;
}

const std::vector<Range>& ParallelAttention::tokens() const {
  return impl().tokens();
}

int64_t ParallelAttention::token_count() const {
  return count(tokens());
}

const RankTokens& ParallelAttention::rank_tokens() const {
  return impl().rank_tokens();
}

size_t ParallelAttention::kept_bytes() const {
  return impl().kept_bytes();
}

void ParallelAttention::forward(const ForwardArgs& args, Stream stream, std::span<std::byte> kept) {
  impl().forward(args, stream, kept);
}

void ParallelAttention::backward(const BackwardArgs& args, Stream stream, std::span<const std::byte> kept) {
  impl().backward(args, stream, kept);
}

void ParallelAttention::finish(Stream stream) {
  impl().finish(stream);
}

}  // namespace longspan
