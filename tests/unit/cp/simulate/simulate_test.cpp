// Simulated passes against closed forms, and properties that hold for every strategy.
#include "cp/simulate/simulate.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "cp/schedule/account.h"
#include "cp/strategies/strategy.h"
#include "unit/cp/problems.h"

namespace longspan::simulate {
namespace {

constexpr double kRate = 1e6;

// Nothing takes time but attends, at a constant speed, and bytes.
Cluster plain_cluster(double bytes_per_s = kRate) {
  Cluster cluster;
  cluster.memory = {.bytes_per_s = 1e18, .operation_s = 0};
  cluster.links.port_bytes_per_s = cluster.links.beside_bytes_per_s = bytes_per_s;
  return cluster;
}

struct Planned {
  Problem problem;
  Topology topology;
  Schedule schedule;
};

Planned planned(const std::string& strategy, const std::string& mask, Topology topology,
                int64_t tokens = 512) {
  Planned plan{cp_problem(mask, tokens, 8, 8), topology, {}};
  plan.schedule = strategy_from_name(strategy).schedule(plan.problem, topology, {});
  return plan;
}

Timeline simulated(const Planned& plan, Direction direction, const Cluster& cluster, double attend_s) {
  const Program program =
      program_of(plan.schedule, direction, plan.problem, cluster, [&](const Attend&) { return attend_s; });
  return run(program, cluster, plan.topology);
}

double most_sent(const Planned& plan, Direction direction) {
  return static_cast<double>(cost_of(plan.schedule, plan.problem, plan.topology).of(direction).most_sent());
}

TEST(Simulate, OneRankTakesTheTimeOfItsAttend) {
  const Planned plan = planned("ring-p2p", "full", {1, 1});
  EXPECT_DOUBLE_EQ(simulated(plan, Direction::kForward, plain_cluster(), 3).time_s, 3);
}

// The kernel of a ring writes in fp32 what later attends merge with, and reads it in fp32: both in the rounds
// between, where reading takes longer and hides the writing.
TEST(Simulate, PartialResultsHaveARateOfTheirOwn) {
  for (const int ranks : {2, 4}) {
    const Planned plan = planned("ring-p2p", "full", {1, ranks});
    Cluster cluster = plain_cluster(1e18);
    const double before_s = simulated(plan, Direction::kForward, cluster, 3).time_s;
    cluster.memory.partial_bytes_per_s = kRate;
    const Problem& problem = plan.problem;
    const double rows = static_cast<double>(problem.tokens_q / ranks * problem.heads_q * problem.dim_v());
    const double wider = 4 - static_cast<double>(size_of(problem.dtype));
    const double after_s = simulated(plan, Direction::kForward, cluster, 3).time_s;
    EXPECT_NEAR(after_s - before_s, (wider + 4 * (ranks - 1)) * rows / kRate, 1e-6) << ranks;
  }
}

// A GPU copies within its memory by SMs, which the kernel leaves when it ends. So a rank's own keys lie open
// in every round of `balanced` but the first, whose keys it pulls with those of others.
TEST(Simulate, OwnKeysAreCopiedWhenTheKernelHasEnded) {
  for (const int ranks : {2, 4}) {
    const Planned plan = planned("balanced", "full", {1, ranks}, 65536 * ranks);
    Cluster cluster = plain_cluster(1e18);
    cluster.memory.bytes_per_s = kRate;
    const Problem& problem = plan.problem;
    int64_t heads = 0;  // of the rounds after the first
    for (size_t i = 1; i < plan.schedule.forward.size(); ++i)
      heads += plan.schedule.regions[plan.schedule.forward[i].attend.front().kv].heads.size();
    ASSERT_GT(heads, 0);
    const double own = static_cast<double>(problem.tokens_kv / ranks * heads * 2 * problem.head_dim) *
                       static_cast<double>(size_of(problem.dtype));
    const Timeline timeline = simulated(plan, Direction::kForward, cluster, 3);
    const double attend_s = 3 * static_cast<double>(plan.schedule.forward.size());
    EXPECT_NEAR(timeline.time_s - attend_s, 2 * own / kRate, 1e-9) << ranks;  // read and written
    for (const RankTimes& rank : timeline.ranks) EXPECT_NEAR(rank.exposed_s, 2 * own / kRate, 1e-9);
    cluster.links.takes_rows = false;  // they are packed before the kernel, in all rounds
    for (const RankTimes& rank : simulated(plan, Direction::kForward, cluster, 3).ranks) {
      EXPECT_NEAR(rank.exposed_s, 0, 1e-9);
      EXPECT_GT(rank.reorder_s, 2 * own / kRate);
    }
  }
}

TEST(Simulate, ARingHidesTransfersThatAreShorterThanItsAttends) {
  const Planned plan = planned("ring-p2p", "full", {1, 4});
  const double hop_s = most_sent(plan, Direction::kForward) / 3 / kRate;
  const Timeline slow = simulated(plan, Direction::kForward, plain_cluster(), 2 * hop_s);
  EXPECT_NEAR(slow.time_s, 4 * 2 * hop_s, 1e-9);
  for (const RankTimes& rank : slow.ranks) EXPECT_NEAR(rank.exposed_s, 0, 1e-9);
}

// A rank of the CPU cannot copy while it attends: each hop comes after an attend.
TEST(Simulate, AReceiverThatCopiesItselfHidesNothing) {
  const Planned plan = planned("ring-p2p", "full", {1, 4});
  const double hop_s = most_sent(plan, Direction::kForward) / 3 / kRate, attend_s = 2 * hop_s;
  Cluster cluster = plain_cluster();
  cluster.links.receiver_copies = true;
  const Timeline slow = simulated(plan, Direction::kForward, cluster, attend_s);
  EXPECT_NEAR(slow.time_s, 4 * attend_s + 3 * hop_s, 1e-9);
  for (const RankTimes& rank : slow.ranks) EXPECT_NEAR(rank.exposed_s, 3 * hop_s, 1e-9);
}

TEST(Simulate, ARingIsAsSlowAsItsTransfersIfTheyAreLonger) {
  const Planned plan = planned("ring-p2p", "full", {1, 4});
  const double hop_s = most_sent(plan, Direction::kForward) / 3 / kRate;
  const Timeline fast = simulated(plan, Direction::kForward, plain_cluster(), hop_s / 2);
  EXPECT_NEAR(fast.time_s, 3 * hop_s + hop_s / 2, 1e-9);
  for (const RankTimes& rank : fast.ranks) {
    EXPECT_NEAR(rank.compute_s, 4 * hop_s / 2, 1e-9);
    EXPECT_NEAR(rank.exposed_s, 3 * hop_s / 2, 1e-9);
  }
}

TEST(Simulate, AllToAllsLieOpenBeforeAndAfterTheAttend) {
  const Planned plan = planned("ulysses", "full", {1, 4});
  const double sent_s = most_sent(plan, Direction::kForward) / kRate;
  Cluster cluster = plain_cluster();
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 3).time_s, sent_s + 3, 1e-9);
  cluster.links.latency_s = 0.25;  // once before and once after
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 3).time_s, sent_s + 3 + 0.5, 1e-9);
}

TEST(Simulate, RanksOfANodeShareTheirInterfaces) {
  const Planned plan = planned("ulysses", "full", {2, 2});
  Cluster cluster = plain_cluster(1e12);
  cluster.links.interface_bytes_per_s = kRate;
  cluster.links.ranks_per_interface = 1;
  const double alone_s = simulated(plan, Direction::kForward, cluster, 0).time_s;
  cluster.links.ranks_per_interface = 2;
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 0).time_s, 2 * alone_s, 1e-3 * alone_s);
  // Half of what crosses goes to the other rail, through a spine of an eighth of the interfaces' rate.
  cluster.links.ranks_per_interface = 1;
  cluster.links.oversubscription = 8;
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 0).time_s, 4 * alone_s, 1e-3 * alone_s);
}

TEST(Simulate, AFlowHasALimitOfItsOwn) {
  Cluster cluster = plain_cluster();
  cluster.links.interface_bytes_per_s = kRate;
  cluster.links.flow_bytes_per_s = kRate / 12;
  for (const Topology topology : {Topology{1, 4}, Topology{4, 1}}) {
    const Planned plan = planned("ulysses", "full", topology);
    const double of_peer_s = most_sent(plan, Direction::kForward) / 3 / (kRate / 12);
    EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 3).time_s, of_peer_s + 3, 1e-6);
  }
}

TEST(Simulate, AKernelBesideTransfersLimitsThemBetweenNodesToo) {
  const Planned plan = planned("ring-p2p", "full", {4, 1});
  const double hop_s = most_sent(plan, Direction::kForward) / 3 / kRate;
  Cluster cluster = plain_cluster();
  cluster.links.interface_bytes_per_s = kRate;
  cluster.links.beside_bytes_per_s = kRate / 2;
  // A kernel runs while each of the three hops is under way.
  const double attend_s = hop_s;
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, attend_s).time_s, 3 * 2 * hop_s + attend_s, 1e-9);
}

TEST(Simulate, NoLinksBetweenNodesIsAnError) {
  EXPECT_THROW(simulated(planned("ulysses", "full", {2, 2}), Direction::kForward, plain_cluster(), 1), Error);
}

TEST(Simulate, AKernelIsSlowerWhileDataComes) {
  const Planned plan = planned("ring-p2p", "full", {1, 4});
  const double hop_s = most_sent(plan, Direction::kForward) / 3 / kRate;
  Cluster cluster = plain_cluster();
  cluster.links.kernel_slowdown = 0.5;
  // Each of the first three attends runs at half speed during its hop; the last one has none beside it.
  const Timeline timeline = simulated(plan, Direction::kForward, cluster, 2 * hop_s);
  EXPECT_NEAR(timeline.time_s, 3 * 2.5 * hop_s + 2 * hop_s, 1e-9);
}

TEST(Simulate, ATransferThatEndsWhileAnAttendWritesDoesNotDelayIt) {
  Cluster cluster = plain_cluster(1);
  cluster.links.kernel_slowdown = 0.5;
  const auto time_s = [&](double bytes) {
    Program program;
    const Step post{StepKind::kPost, 0}, attend{StepKind::kAttend, -1, 1, 1}, finish{StepKind::kFinish, 0};
    program.steps = {{post, attend, finish}, {post, finish}};
    program.flows = {{0, 1, 0, bytes}};
    program.exchanges = 1;
    program.beside = {false};
    return run(program, cluster, {1, 2}).time_s;
  };
  EXPECT_NEAR(time_s(1.5), 2.75, 1e-9);  // 0.75 of the work at half speed, the rest, a second of memory
  EXPECT_NEAR(time_s(2.5), 3, 1e-9);     // it ends while the attend writes
}

TEST(Simulate, TheClockFallsAsAPassComputes) {
  const Planned plan = planned("ring-p2p", "full", {1, 1});
  Cluster cluster = plain_cluster();
  cluster.clock = {.burst = 2, .sustained = 1, .settle_s = 1e-6};
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 3).time_s, 3, 1e-5);
  cluster.clock.settle_s = 1e6;
  EXPECT_NEAR(simulated(plan, Direction::kForward, cluster, 3).time_s, 1.5, 1e-5);
}

// Of every strategy, both passes, on one node and on two.
class EveryStrategy : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EveryStrategy, IsNeverFasterThanItsLargestPortOrItsAttends) {
  for (const std::string mask : {"full", "causal_document"}) {
    const Planned plan = planned(std::string(GetParam()), mask, {1, 4});
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (const double attend_s : {0.0, 0.01, 10.0}) {
        const Timeline timeline = simulated(plan, direction, plain_cluster(), attend_s);
        EXPECT_GE(timeline.time_s * (1 + 1e-9), most_sent(plan, direction) / kRate) << mask;
        for (const RankTimes& rank : timeline.ranks) {
          EXPECT_NEAR(rank.compute_s + rank.exposed_s + rank.reorder_s + rank.merge_s, rank.end_s, 1e-6);
          EXPECT_GE(timeline.time_s, rank.compute_s);
        }
      }
    }
  }
}

TEST_P(EveryStrategy, IsNoSlowerWithMoreBandwidth) {
  const Planned plan = planned(std::string(GetParam()), "causal", {2, 2});
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    double before_s = kRate;
    for (const double rate : {1.0, 2.0, 4.0, 64.0}) {
      Cluster cluster = plain_cluster(4 * rate * kRate);
      cluster.links.interface_bytes_per_s = rate * kRate;
      const double time_s = simulated(plan, direction, cluster, 0.05).time_s;
      EXPECT_LE(time_s, before_s * (1 + 1e-9)) << rate;
      before_s = time_s;
    }
  }
}

TEST_P(EveryStrategy, ItsRoundsBeginOneAfterAnother) {
  const Planned plan = planned(std::string(GetParam()), "causal_document", {1, 4});
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const size_t rounds =
        direction == Direction::kForward ? plan.schedule.forward.size() : plan.schedule.backward.size();
    const Timeline timeline = simulated(plan, direction, plain_cluster(), 0.02);
    for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      const std::vector<double>& begun_s = timeline.rounds_s[rank];
      ASSERT_EQ(begun_s.size(), rounds);
      EXPECT_EQ(begun_s.front(), 0);
      EXPECT_TRUE(std::is_sorted(begun_s.begin(), begun_s.end()));
      EXPECT_LE(begun_s.back(), timeline.ranks[rank].end_s);
    }
  }
}

TEST_P(EveryStrategy, ItsCriticalPathIsWithoutGaps) {
  const Planned plan = planned(std::string(GetParam()), "causal_document", {1, 4});
  const Cluster cluster = plain_cluster();
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    const Program program =
        program_of(plan.schedule, direction, plan.problem, cluster, [](const Attend&) { return 0.02; });
    const Timeline timeline = run(program, cluster, plan.topology);
    const std::vector<PathStretch> path = critical_path(program, timeline);
    ASSERT_FALSE(path.empty());
    EXPECT_NEAR(path.front().begin_s, 0, 1e-9);
    EXPECT_DOUBLE_EQ(path.back().end_s, timeline.time_s);
    for (size_t i = 1; i < path.size(); ++i) EXPECT_NEAR(path[i].begin_s, path[i - 1].end_s, 1e-9);
  }
}

std::vector<std::string_view> strategy_names_of_table() {
  std::vector<std::string_view> names;
  for (const Strategy& strategy : strategies()) names.push_back(strategy.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategy, ::testing::ValuesIn(strategy_names_of_table()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace longspan::simulate
