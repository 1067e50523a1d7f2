#include "bench/simulate/predict.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/host_memory.h"
#include "bench/measure/mask_source.h"
#include "bench/measure/pass_plan.h"
#include "cp/schedule/account.h"
#include "cp/simulate/memory.h"
#include "mask/band_list.h"
#include "record/json_writer.h"
#include "record/record_json.h"

namespace longspan::bench {
namespace {

using simulate::RankTimes;

// Prices attends. Shards that look alike cost the same, and in dense masks most do.
class AttendPrices {
 public:
  AttendPrices(const Schedule& schedule, const Problem& problem, Direction direction, const KernelCost& cost)
      : schedule_(schedule), problem_(problem), direction_(direction), cost_(cost) {}

  double operator()(const Attend& attend) {
    const Region &q = schedule_.regions[attend.q], &kv = schedule_.regions[attend.kv];
    HeadMasks masks;
    if (problem_.masks->size() == 1) {
      masks.push_back(problem_.masks->front().gather(q.tokens, kv.tokens));
    } else {
      for (int64_t head = kv.heads.begin; head < kv.heads.end; ++head)
        masks.push_back(problem_.mask_of_kv_head(head).gather(q.tokens, kv.tokens));
    }
    std::vector<Known>& alike = known_[hash_of(masks, q.heads.size())];
    for (const Known& known : alike) {
      if (known.heads_q == q.heads.size() && known.heads_kv == kv.heads.size() && same(known.masks, masks))
        return known.seconds;
    }
    const KernelPassCost& pass = cost_.of(direction_);
    const double seconds = seconds_of(tile_work(masks, q.heads.size(), kv.heads.size(), pass), pass,
                                      cost_.units, (problem_.head_dim + problem_.dim_v()) / 2);
    alike.push_back({std::move(masks), q.heads.size(), kv.heads.size(), seconds});
    return seconds;
  }

 private:
  struct Known {
    HeadMasks masks;
    int64_t heads_q, heads_kv;
    double seconds;
  };

  static bool same(const HeadMasks& a, const HeadMasks& b) {
    const auto equal = [](const Mask& x, const Mask& y) {
      return x.rows() == y.rows() && x.columns() == y.columns() && x == y;
    };
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
  }

  static uint64_t hash_of(const HeadMasks& masks, int64_t heads) {
    auto hash = static_cast<uint64_t>(heads);
    const auto add = [&](int64_t value) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    };
    for (const Mask& mask : masks) {
      for (const int64_t value : {mask.rows(), mask.columns(), mask.area()}) add(value);
      add(static_cast<int64_t>(mask.bands().size()));
    }
    return hash;
  }

  const Schedule& schedule_;
  const Problem& problem_;
  const Direction direction_;
  const KernelCost& cost_;
  std::unordered_map<uint64_t, std::vector<Known>> known_;
};

void add_times(record::ParallelRecord& record, const simulate::Timeline& timeline, double share) {
  const auto add = [&](std::vector<double>& sums, double RankTimes::*part) {
    sums.resize(timeline.ranks.size());
    for (size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += share * (timeline.ranks[rank].*part);
  };
  add(record.rank_time_s, &RankTimes::end_s);
  add(record.compute_s, &RankTimes::compute_s);
  add(record.exposed_s, &RankTimes::exposed_s);
  add(record.reorder_s, &RankTimes::reorder_s);
  add(record.merge_s, &RankTimes::merge_s);
}

void add(std::vector<double>& sums, const std::vector<double>& values, double share) {
  sums.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sums[i] += share * values[i];
}

// What follows from the schedule alone.
record::ParallelRecord planned(const Case& c, const Schedule& schedule, const Problem& problem) {
  const Topology topology = c.parallelism.topology();
  const Cost cost = cost_of(schedule, problem, topology);
  const PassCost& pass = cost.of(c.direction);
  record::ParallelRecord record;
  record.ranks = schedule.ranks;
  record.nodes = topology.nodes;
  record.transport = name_of(c.parallelism.transport);
  record.rounds = static_cast<int64_t>(pass.rounds.size());
  record.imbalance = pass.imbalance;
  record.area = {pass.area.begin(), pass.area.end()};
  record.between_nodes_bytes = {pass.sent_between.begin(), pass.sent_between.end()};
  for (size_t rank = 0; rank < pass.area.size(); ++rank) {
    record.predicted_bytes.push_back(static_cast<double>(pass.sent(rank)));
    record.peak_copy_bytes.push_back(
        static_cast<double>(pass.peak_elements[rank] * static_cast<int64_t>(size_of(problem.dtype))));
  }
  record.plan = pass_plan(schedule, c.direction, problem, cost);
  if (schedule.ranks > kMostRanksDrawn) record.plan.by_round.clear();
  return record;
}

}  // namespace

simulate::Cluster cluster_of(const Case& c, const Machine& machine) {
  const std::string transport(name_of(c.parallelism.transport));
  const simulate::Cluster cluster =
      machine.cluster(c, c.parallelism ? transport : machine.links.begin()->first);
  const Topology topology = c.parallelism ? c.parallelism.topology() : Topology{};
  LONGSPAN_CHECK_INPUT(!c.parallelism || topology.devices <= machine.gpus_per_node,
                       "{} has {} GPUs a node, not {}; give --topology NODESx{}", machine.name,
                       machine.gpus_per_node, topology.devices, machine.gpus_per_node);
  // Ring all-gather of documents on 1,024 ranks takes 1.4 GiB.
  constexpr double kBytesPerPair = 1500;
  const double ranks = topology.ranks();
  check_host_memory(kBytesPerPair * ranks * ranks, fmt::format("the moves between {} ranks", ranks));
  return cluster;
}

Problem problem_of(const Case& c, HeadMasks masks) {
  Problem problem;
  problem.tokens_q = masks.front().rows();
  problem.tokens_kv = masks.front().columns();
  problem.heads_q = c.heads_q;
  problem.heads_kv = c.heads_kv;
  problem.head_dim = c.head_dim;
  problem.head_dim_v = c.head_dim_v;
  problem.dtype = c.dtype;
  problem.masks = std::make_shared<const HeadMasks>(std::move(masks));
  problem.check();
  return problem;
}

PlannedMask plan_mask(const Case& c, HeadMasks masks) {
  PlannedMask planned{problem_of(c, std::move(masks)), {}};
  const Topology topology = c.parallelism.topology();
  const Strategy& strategy = strategy_from_name(c.parallelism.strategy);
  const Support support = strategy.supports(planned.problem, topology, c.parallelism.options);
  LONGSPAN_CHECK_INPUT(support, "{} {}", strategy.name, support.reason);
  planned.schedule = strategy.schedule(planned.problem, topology, c.parallelism.options);
  return planned;
}

simulate::Program program_of(const PlannedMask& mask, Direction direction, const simulate::Cluster& cluster) {
  return simulate::program_of(mask.schedule, direction, mask.problem, cluster,
                              AttendPrices(mask.schedule, mask.problem, direction, cluster.kernel));
}

namespace {

std::vector<double> held_of(const std::vector<simulate::MemoryUse>& memory) {
  std::vector<double> held;
  held.reserve(memory.size());
  for (const simulate::MemoryUse& use : memory) held.push_back(static_cast<double>(use.held));
  return held;
}

}  // namespace

std::vector<double> held_by_rank(const PlannedMask& mask, Direction direction, bool takes_rows) {
  return held_of(simulate::memory_by_rank(mask.schedule, mask.problem, direction, takes_rows));
}

simulate::Cluster with_links(simulate::Cluster cluster, double factor) {
  simulate::LinkCost& links = cluster.links;
  for (double* rate : {&links.port_bytes_per_s, &links.beside_bytes_per_s, &links.flow_bytes_per_s,
                       &links.interface_bytes_per_s})
    *rate *= factor;
  return cluster;
}

Prediction predict(const Case& c, const Machine& machine, Band band,
                   const std::function<void(const std::string&)>& progress) {
  const auto say = [&](const std::string& text) {
    if (progress) progress(text);
  };
  const simulate::Cluster cluster = cluster_of(c, machine);
  const Topology topology = c.parallelism ? c.parallelism.topology() : Topology{};
  Prediction prediction;
  record::CaseRecord& record = prediction.record;
  record.id = id_of(c);
  record.workload = record::workload_from(to_json(c));
  record.status = record::Status::kOk;
  MaskSource source(c);
  record::Interval of_band{0, 0};
  double time_s = 0, area = 0, done = 0;
  const double share = 1 / static_cast<double>(c.masks);
  const auto count = [&](const Problem& problem) {
    area += share * static_cast<double>(problem.area());
    done += share * flops(problem, c.direction);
  };
  for (int64_t i = 0; i < c.masks; ++i) {
    say("drawing the mask");
    HeadMasks masks = source.next().masks;
    if (!c.parallelism) {
      const Problem problem = problem_of(c, std::move(masks));
      count(problem);
      time_s += share * estimate_s(problem, c.direction, cluster.kernel);
      continue;
    }
    say(fmt::format("planning {} on {} ranks", c.parallelism.strategy, topology.ranks()));
    const PlannedMask mask = plan_mask(c, std::move(masks));
    count(mask.problem);
    say("pricing what each rank computes");
    SimulatedPass pass;
    pass.program = program_of(mask, c.direction, cluster);
    say("simulating");
    pass.timeline = simulate::run(pass.program, cluster, topology);
    if (i == 0) record.parallel = planned(c, mask.schedule, mask.problem);
    add_times(*record.parallel, pass.timeline, share);
    say("counting what its buffers hold");
    pass.memory =
        simulate::memory_by_rank(mask.schedule, mask.problem, c.direction, cluster.links.takes_rows);
    add(record.parallel->held_bytes, held_of(pass.memory), share);
    time_s += share * pass.timeline.time_s;
    if (band == Band::kLinks) {
      const auto with = [&](double factor) {
        return share * simulate::run(pass.program, with_links(cluster, factor), topology).time_s;
      };
      of_band.lo += with(kFasterLinks);
      of_band.hi += with(kSlowerLinks);
    }
    if (i == 0) prediction.pass = std::move(pass);
  }
  record.area = area;
  record.flops = done;
  record.time_s = time_s;
  if (of_band.hi > 0) record.interval_s = of_band;
  record.flops_per_s = done / time_s;
  if (record.parallel) {
    record.parallel->planned_held_bytes = record.parallel->held_bytes;
    record.flops_per_s_per_rank = *record.flops_per_s / static_cast<double>(topology.ranks());
    const auto& times = record.parallel->rank_time_s;
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    record.parallel->spread = (*most - *least) / *most;
  }
  return prediction;
}

std::string_view name_of(simulate::StepKind kind) {
  switch (kind) {
    case simulate::StepKind::kAttend:
      return "compute";
    case simulate::StepKind::kReorder:
    case simulate::StepKind::kPost:
      return "reorder";
    case simulate::StepKind::kMerge:
      return "merge";
    case simulate::StepKind::kOwn:
    case simulate::StepKind::kArrive:
    case simulate::StepKind::kFinish:
      return "wait";
  }
  return "";
}

int32_t peer_of(const simulate::Program& program, const simulate::Segment& segment, size_t rank) {
  if (segment.flow < 0) return -1;
  const simulate::Flow& flow = program.flows[static_cast<size_t>(segment.flow)];
  return flow.src == static_cast<int32_t>(rank) ? flow.dst : flow.src;
}

std::vector<MemoryStep> memory_over_time(const SimulatedPass& pass, size_t rank) {
  std::vector<MemoryStep> steps;
  const std::vector<double>& begun_s = pass.timeline.rounds_s[rank];
  for (size_t round = 0; round < begun_s.size(); ++round)
    steps.push_back({begun_s[round], static_cast<double>(pass.memory[rank].by_round[round])});
  return steps;
}

record::Json simulated_line(const Prediction& prediction, const Machine& machine) {
  const record::CaseRecord& record = prediction.record;
  record::Json line = to_json(record);
  line["type"] = "simulated";
  if (record.parallel) {  // what only a run measures is absent
    record::Json ranks = record::Json::object();
    for (const auto& [key, value] : line["parallel"].items()) {
      if (!value.is_array() || !value.empty()) ranks.push_back({key, value});
    }
    line["parallel"] = std::move(ranks);
  }
  const std::string transport = record.parallel ? record.parallel->transport : "";
  line["machine"] = {{"name", machine.name}, {"measured", machine.measured(transport)}};
  const SimulatedPass& pass = prediction.pass;
  if (pass.memory.empty() || pass.memory.size() > kMostRanksDrawn) return line;
  record::SimulatedTimeline timeline;
  record::SimulatedMemory memory;
  for (size_t rank = 0; rank < pass.memory.size(); ++rank) {
    for (const simulate::Segment& segment : pass.timeline.segments[rank]) {
      timeline.rank.push_back(static_cast<int64_t>(rank));
      timeline.what.emplace_back(name_of(segment.kind));
      timeline.begin_s.push_back(segment.begin_s);
      timeline.end_s.push_back(segment.end_s);
      timeline.peer.push_back(peer_of(pass.program, segment, rank));
    }
    for (const MemoryStep& step : memory_over_time(pass, rank)) {
      memory.rank.push_back(static_cast<int64_t>(rank));
      memory.begin_s.push_back(step.begin_s);
      memory.bytes.push_back(step.bytes);
    }
  }
  line["timeline"] = record::encode(timeline);
  line["memory"] = record::encode(memory);
  return line;
}

}  // namespace longspan::bench
