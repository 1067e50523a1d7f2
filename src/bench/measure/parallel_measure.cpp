// Spreads kernels over ranks, times their passes, and fills in the record of the ranks.
#include "bench/measure/parallel_measure.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention/element.h"
#include "attention/oracle/sweeps_cuda.h"
#include "base/error.h"
#include "base/parallel.h"
#include "bench/measure/cold_cache.h"
#include "bench/measure/pass_plan.h"
#include "bench/measure/statistics.h"
#include "comm/launch.h"
#include "comm/mpi.h"
#include "comm/nccl.h"
#include "comm/threads.h"
#include "cp/simulate/memory.h"
#include "record/fields.h"

namespace longspan::bench {
namespace {

// The longest wait between ranks. The case has its own time limit as well.
constexpr std::chrono::milliseconds kWaitLimit{120000};

std::vector<double> by_rank(const std::vector<std::vector<RankPass>>& samples,
                            double (*value)(const RankPass&)) {
  std::vector<double> medians;
  for (size_t rank = 0; rank < samples.front().size(); ++rank) {
    std::vector<double> values;
    values.reserve(samples.size());
    for (const auto& sample : samples) values.push_back(value(sample[rank]));
    medians.push_back(median(values));
  }
  return medians;
}

std::vector<double> as_doubles(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

// Collects a record's per-rank lists, in the order of its fields.
class RankLists {
 public:
  template <class T>
  void field(const char* /*key*/, T& value, const char* /*meaning*/, unsigned /*flags*/ = 0) {
    if constexpr (std::same_as<T, std::vector<double>>) lists.push_back(&value);
  }
  std::vector<std::vector<double>*> lists;
};

using Errors = std::map<std::string, double>;

void take_worse(Errors& worst, const Errors& errors) {
  for (const auto& [tensor, error] : errors) {
    double& so_far = worst.try_emplace(tensor, error).first->second;
    if (!(error <= so_far)) so_far = error;
  }
}

}  // namespace

void check_transport(const Kernel& kernel, Transport transport) {
  const bool gpus = kernel.device_kind() == DeviceKind::kCuda;
  if (transport == Transport::kNccl) {
    LONGSPAN_CHECK_INPUT(gpus, "NCCL connects GPUs; {} runs on the CPU", kernel.name());
    const std::string reason = nccl_unavailable_reason();
    LONGSPAN_CHECK_INPUT(reason.empty(), "{}", reason);
  }
  LONGSPAN_CHECK_INPUT(transport != Transport::kMpi || !gpus,
                       "MPI connects CPUs; {} runs on GPUs, which need NCCL", kernel.name());
}

void check_gpu_for_each_rank(size_t gpus, int ranks) {
  LONGSPAN_CHECK_INPUT(
      gpus >= static_cast<size_t>(ranks),
      "NCCL needs one GPU per rank: {} ranks, {} GPUs; use --transport threads with fewer GPUs", ranks, gpus);
}

Spread spread(const Kernel& kernel, const Parallelism& p, const std::vector<Device>& devices,
              const Device& device, Alarm* alarm) {
  check_transport(kernel, p.transport);
  const bool gpus = kernel.device_kind() == DeviceKind::kCuda;
  Spread made;
  ParallelOptions options;
  options.strategy = &strategy_from_name(p.strategy);
  options.topology = p.topology();
  options.options = p.options;
  options.limit = kWaitLimit;
  if (const std::optional<Launch> launch = launch_of_processes(p)) {
    LONGSPAN_CHECK_INPUT(launch->ranks == p.ranks, "the case has {} ranks, but {} started {} processes",
                         p.ranks, launch->launcher, launch->ranks);
    made.process =
        gpus ? nccl_communicator(*launch, device, kWaitLimit) : mpi_communicator(kWaitLimit, alarm);
    options.process = made.process.get();
  } else {
    LONGSPAN_CHECK_INPUT(p.transport != Transport::kMpi,
                         "ranks over MPI are processes; start them with mpirun -n {} longspan run ...",
                         p.ranks);
    for (const Device& each : devices) {
      if (each.kind == kernel.device_kind()) options.devices.push_back(each);
    }
    options.communicators = [](std::span<const Device> ranks, std::chrono::milliseconds limit) {
      return thread_communicators(static_cast<int>(ranks.size()), limit);
    };
    if (p.transport == Transport::kNccl) {
      check_gpu_for_each_rank(options.devices.size(), p.ranks);
      options.communicators = nccl_communicators;
    }
  }
  made.kernel = parallel_kernel(kernel, std::move(options));
  return made;
}

Sample ParallelStopwatch::time(const Work& work) {
  return row(work, 1).front();
}

std::vector<Sample> ParallelStopwatch::row(const Work&, int64_t count) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < count; ++i) {
    if (cold_cache_ && testbed_.device().kind == DeviceKind::kCpu) {
      std::vector<MemorySpan> spans;
      for (const ParallelPlan::Memory& memory : plan_.memory()) spans.push_back({memory.data, memory.bytes});
      evict_from_caches(spans, testbed_.device().cache_bytes);
    }
    passes_.push_back(plan_.run(direction_, cold_cache_));
    Sample& sample = samples.emplace_back();
    for (const RankPass& pass : passes_.back()) sample.time_s = std::max(sample.time_s, pass.time_s);
  }
  const std::vector<double> states = plan_.of_all(testbed_.sample_device_state() ? 1 : 0);
  const bool throttled = *std::max_element(states.begin(), states.end()) > 0;
  for (Sample& sample : samples) sample.throttled = throttled;
  return samples;
}

int64_t ParallelStopwatch::row_length(double time_s) const {
  return testbed_.row_length(time_s);
}

void add_measured(record::ParallelRecord& result, const std::vector<std::vector<RankPass>>& passes,
                  size_t samples) {
  const std::vector<std::vector<RankPass>> counted(
      passes.end() - static_cast<int64_t>(std::min(samples, passes.size())), passes.end());
  result.spread = 0;
  if (counted.empty()) return;
  result.rank_time_s = by_rank(counted, [](const RankPass& pass) { return pass.time_s; });
  result.compute_s = by_rank(counted, [](const RankPass& pass) { return pass.times.compute_s; });
  result.exposed_s = by_rank(counted, [](const RankPass& pass) { return pass.times.exposed_s; });
  result.reorder_s = by_rank(counted, [](const RankPass& pass) { return pass.times.reorder_s; });
  result.merge_s = by_rank(counted, [](const RankPass& pass) { return pass.times.merge_s; });
  result.sent_bytes =
      by_rank(counted, [](const RankPass& pass) { return static_cast<double>(pass.times.sent_bytes); });
  result.peak_copy_bytes =
      by_rank(counted, [](const RankPass& pass) { return static_cast<double>(pass.times.peak_copy_bytes); });
  result.held_bytes =
      by_rank(counted, [](const RankPass& pass) { return static_cast<double>(pass.times.held_bytes); });
  std::vector<double> spreads;
  for (const auto& sample : counted) {
    const auto [least, most] =
        std::minmax_element(sample.begin(), sample.end(),
                            [](const RankPass& a, const RankPass& b) { return a.time_s < b.time_s; });
    spreads.push_back(most->time_s > 0 ? (most->time_s - least->time_s) / most->time_s : 0);
  }
  result.spread = median(spreads);
}

void add_planned(record::ParallelRecord& result, const ParallelPlan& plan, const Problem& problem,
                 Direction direction, const Parallelism& p) {
  const Schedule& schedule = plan.schedule();
  const Cost cost = cost_of(schedule, problem, p.topology());
  const PassCost& pass = cost.of(direction);
  result.ranks = p.ranks;
  result.nodes = p.topology().nodes;
  result.transport = name_of(p.transport);
  result.rounds = static_cast<int64_t>(pass.rounds.size());
  result.imbalance = pass.imbalance;
  result.area = as_doubles(pass.area);
  result.between_nodes_bytes = as_doubles(pass.sent_between);
  result.predicted_bytes = result.between_nodes_bytes;
  for (size_t rank = 0; rank < pass.area.size(); ++rank)
    result.predicted_bytes[rank] += static_cast<double>(pass.sent_within[rank]);
  // Buffers of the forward pass still exist in the backward pass, whether or not they fit its requests: only
  // taking them one after another says what is held in the end.
  const auto simulated = [&](bool kernel_merges) {
    return simulate::memory_by_rank(schedule, problem, direction, p.transport == Transport::kThreads,
                                    kernel_merges);
  };
  const std::vector<simulate::MemoryUse> merging = simulated(true), parts = simulated(false);
  for (int rank = 0; rank < static_cast<int>(pass.area.size()); ++rank) {
    int64_t most = buffer_bytes(schedule, problem, cost, rank, Direction::kForward);
    if (direction == Direction::kBackward)
      most = std::max(most, buffer_bytes(schedule, problem, cost, rank, direction));
    const auto at = static_cast<size_t>(rank);
    result.planned_held_bytes.push_back(
        static_cast<double>(std::max({most, merging[at].held, parts[at].held})));
  }
  result.plan = pass_plan(schedule, direction, problem, cost);
  result.plan.owned = owned_tokens(schedule);
}

double relative_difference(const TensorView& a, const TensorView& b, DeviceKind kind) {
  const auto quotient = [](double difference, double norm) {
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  };
#ifdef LONGSPAN_WITH_CUDA
  if (kind == DeviceKind::kCuda) {
    const auto [difference, norm] = squares_cuda(a, b);
    return quotient(difference, norm);
  }
#endif
  LONGSPAN_CHECK(kind == DeviceKind::kCpu, "tensors of a device of kind {}", static_cast<int>(kind));
  constexpr int64_t kTokensPerTask = 64;
  const int64_t tasks = (b.tokens + kTokensPerTask - 1) / kTokensPerTask;
  std::vector<std::pair<double, double>> sums(static_cast<size_t>(tasks));  // squares: difference, norm
  parallel_for(tasks, [&](int64_t task, int) {
    const auto head_dim = static_cast<size_t>(b.head_dim);
    std::vector<double> x(head_dim), y(head_dim);
    auto& [difference, norm] = sums[static_cast<size_t>(task)];
    for (int64_t token = task * kTokensPerTask; token < std::min(b.tokens, (task + 1) * kTokensPerTask);
         ++token) {
      for (int64_t head = 0; head < b.heads; ++head) {
        load_row(a, token, head, x.data());
        load_row(b, token, head, y.data());
        for (size_t d = 0; d < head_dim; ++d) {
          difference += (x[d] - y[d]) * (x[d] - y[d]);
          norm += y[d] * y[d];
        }
      }
    }
  });
  double difference = 0, norm = 0;
  for (const auto& sum : sums) {
    difference += sum.first;
    norm += sum.second;
  }
  return quotient(difference, norm);
}

record::ParallelRecord mean_of(const std::vector<record::ParallelRecord>& masks) {
  record::ParallelRecord mean = masks.front();
  RankLists means;
  visit(means, mean);
  for (size_t i = 1; i < masks.size(); ++i) {
    record::ParallelRecord mask = masks[i];
    RankLists one;
    visit(one, mask);
    for (size_t list = 0; list < means.lists.size(); ++list) {
      for (size_t rank = 0; rank < means.lists[list]->size(); ++rank)
        (*means.lists[list])[rank] += (*one.lists[list])[rank];
    }
    *mean.imbalance += *mask.imbalance;
    *mean.spread += *mask.spread;
    take_worse(mean.difference, mask.difference);
    take_worse(mean.single_error, mask.single_error);
  }
  const auto count = static_cast<double>(masks.size());
  for (std::vector<double>* list : means.lists) {
    for (double& value : *list) value /= count;
  }
  *mean.imbalance /= count;
  *mean.spread /= count;
  return mean;
}

}  // namespace longspan::bench
