// Every strategy on thread ranks gives the result of a single device, forward and backward.
#include "cp/execute/executor.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/oracle/counting_oracle.h"
#include "attention/oracle/verify.h"
#include "base/error.h"
#include "comm/threads.h"
#include "cp/execute/parallel_kernel.h"
#include "cp/schedule/account.h"
#include "cp/simulate/memory.h"
#include "cp/strategies/strategy.h"
#include "kernels/registry.h"
#include "unit/cp/spread.h"
#include "unit/cp/strategy_name.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class Executors : public ::testing::TestWithParam<Strategy> {};

TEST_P(Executors, GiveTheResultOfASingleDevice) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  for (const Pattern& pattern : patterns()) {
    const std::string name(pattern.name);
    for (auto [heads_q, heads_kv] : {std::pair{8, 8}, {8, 2}}) {
      const Problem problem = cp_problem(name, cp_length(name), heads_q, heads_kv);
      Tensors single = draw(problem);
      run_single(kernel, problem, single);
      for (int ranks : {2, 3, 4, 6, 8}) {
        SCOPED_TRACE(fmt::format("{} {} {}:{} on {} ranks", GetParam().name, name, heads_q, heads_kv, ranks));
        StrategyOptions options;
        options.set("ulysses", ranks % 2 == 0 ? 2 : 1);  // for strategies that read it
        if (!GetParam().supports(problem, {1, ranks}, options)) continue;
        const Schedule schedule = GetParam().schedule(problem, {1, ranks}, options);
        EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
          check_rank(kernel, problem, schedule, single, communicator, 1e-5, ranks == 4 ? 2 : 1);
        }));
      }
    }
  }
}

TEST_P(Executors, AccumulateInFloatWhateverTheTensorsAre) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  Problem problem = cp_problem("causal", 512, 8, 2, 32);
  problem.dtype = DType::kBF16;
  Tensors single = draw(problem);
  run_single(kernel, problem, single);
  for (int ranks : {2, 8}) {
    SCOPED_TRACE(ranks);
    const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {});
    EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
      check_rank(kernel, problem, schedule, single, communicator, 4e-3);  // both round to bf16 once
    }));
  }
}

TEST_P(Executors, PassOnTheGradientOfLse) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  for (const char* mask : {"causal_document", "share_question", "uniform_block_sparse"}) {
    for (auto [heads_q, heads_kv] : {std::pair{8, 8}, {8, 2}, {6, 3}}) {
      Problem problem = cp_problem(mask, cp_length(mask), heads_q, heads_kv);
      problem.lse_gradient = true;
      Tensors single = draw(problem);
      run_single(kernel, problem, single);
      for (int ranks : {2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{} {}:{} on {} ranks", mask, heads_q, heads_kv, ranks));
        const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {});
        EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
          check_rank(kernel, problem, schedule, single, communicator, 1e-5, 1);
          WithoutRows without(communicator);
          check_rank(kernel, problem, schedule, single, without, 1e-5, 1);
        }));
      }
    }
  }
}

TEST_P(Executors, TakeHeadDimOfValuesAndSoftcap) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  for (const char* mask : {"causal_document", "share_question", "uniform_block_sparse"}) {
    for (const auto& [dim, dim_v] : {std::pair{24, 8}, {8, 40}}) {
      Problem problem = cp_problem(mask, cp_length(mask), 8, 2, dim);
      problem.head_dim_v = dim_v;
      problem.softcap = 3;
      problem.lse_gradient = true;
      Tensors single = draw(problem);
      run_single(kernel, problem, single);
      for (int ranks : {2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{}, head_dim {} and {}, {} ranks", mask, dim, dim_v, ranks));
        const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {});
        EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
          check_rank(kernel, problem, schedule, single, communicator, 1e-5, 1);
          WithoutRows without(communicator);
          check_rank(kernel, problem, schedule, single, without, 1e-5, 1);
        }));
      }
    }
  }
}

TEST_P(Executors, TakeANullGradientOfLseForZeros) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  Problem problem = cp_problem("causal", 509, 8, 2);
  Tensors single = draw(problem);
  run_single(kernel, problem, single);
  problem.lse_gradient = true;
  const Schedule schedule = GetParam().schedule(problem, {1, 3}, {});
  EXPECT_NO_THROW(run_thread_ranks(3, milliseconds(60000), [&](Communicator& communicator) {
    const Ranges& owned = schedule.owned[static_cast<size_t>(communicator.rank())];
    Executor executor(schedule, problem, kernel, cpu_device(), communicator);
    const Buffer kept(executor.kept_bytes(), cpu_device());
    Problem without = problem;
    without.lse_gradient = false;
    Tensors local = part_of(without, single, owned);
    executor.forward(local.forward(), kept.data(), {});
    executor.backward(local.backward(), kept.data(), {});
    check_results(problem, local, single, owned, 1e-5);
  }));
}

INSTANTIATE_TEST_SUITE_P(All, Executors, ::testing::ValuesIn(strategies().begin(), strategies().end()),
                         strategy_name);

// Wraps the plans of another kernel and checks that rows said to be complete get their own dtype.
class Watched : public Plan {
 public:
  Watched(std::unique_ptr<Plan> plan, const Problem& problem) : plan_(std::move(plan)), problem_(problem) {}
  size_t workspace_bytes(Direction direction) const override { return plan_->workspace_bytes(direction); }
  size_t plan_bytes() const override { return plan_->plan_bytes(); }
  void forward(const ForwardArgs& args, Stream stream) override {
    LONGSPAN_CHECK(!problem_.own_rows || args.o.dtype == problem_.dtype, "o is {}", name_of(args.o.dtype));
    plan_->forward(args, stream);
  }
  void backward(const BackwardArgs& args, Stream stream) override {
    LONGSPAN_CHECK(!problem_.own_rows || args.dq.dtype == problem_.dtype, "dq is {}", name_of(args.dq.dtype));
    plan_->backward(args, stream);
  }

 private:
  const std::unique_ptr<Plan> plan_;
  const Problem problem_;
};

class WatchingKernel : public Kernel {
 public:
  std::string_view name() const override { return kernel_.name(); }
  std::string_view description() const override { return kernel_.description(); }
  DeviceKind device_kind() const override { return kernel_.device_kind(); }
  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    return kernel_.supports(problem, direction, device);
  }
  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    (problem.own_rows ? own : parts)++;
    return std::make_unique<Watched>(kernel_.plan(problem, device), problem);
  }

  mutable std::atomic<int> own = 0, parts = 0;  // plans made

 private:
  const Kernel& kernel_ = kernel_from_name("cpu-flash");
};

TEST_P(Executors, TellTheKernelWhichRowsAreComplete) {
  for (const char* mask : {"full", "causal_document"}) {
    Problem problem = cp_problem(mask, 600, 8, 2, 32);
    problem.dtype = DType::kBF16;
    const WatchingKernel kernel;
    Tensors single = draw(problem);
    run_single(kernel, problem, single);
    const int before = kernel.own + kernel.parts;
    const Schedule schedule = GetParam().schedule(problem, {1, 4}, {});
    EXPECT_NO_THROW(run_thread_ranks(4, milliseconds(60000), [&](Communicator& communicator) {
      check_rank(kernel, problem, schedule, single, communicator, 4e-3);
    }));
    ASSERT_GT(kernel.own + kernel.parts, before);
    // In a ring, rows attend in several rounds; elsewhere, once to all keys that they see.
    int64_t attended = 0;
    for (const Round& round : schedule.forward) {
      for (const Attend& attend : round.attend) {
        const Region& q = schedule.regions[static_cast<size_t>(attend.q)];
        attended += count(q.tokens) * q.heads.size();
      }
    }
    if (attended == problem.tokens_q * problem.heads_q) {
      EXPECT_EQ(kernel.parts, before);
    }
    if (GetParam().name == "ring-p2p" && mask == std::string_view("full")) {
      EXPECT_EQ(kernel.own, 0);
    }
  }
}

TEST_P(Executors, HoldWhatThePlanSays) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  for (const char* mask : {"causal", "causal_document"}) {
    for (int ranks : {4, 8, 16}) {
      PatternOptions pattern;
      pattern.seqlen = 256 * ranks;
      pattern.lengths = "long-mix";
      Problem problem = cp_problem("full", 64, 8, 2);
      problem.tokens_q = problem.tokens_kv = pattern.seqlen;
      problem.dtype = DType::kBF16;
      problem.lse_gradient = ranks == 8;
      problem.masks = std::make_shared<HeadMasks>(draw_mask(mask, pattern).masks);
      const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {});
      const Cost cost = cost_of(schedule, problem, {1, ranks});
      std::vector<std::vector<int64_t>> held(static_cast<size_t>(ranks)), mixed(held);
      std::vector<int64_t> alone(static_cast<size_t>(ranks));
      run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
        const auto rank = static_cast<size_t>(communicator.rank());
        Tensors local(problem, count(schedule.owned[rank]));
        Executor forward_only(schedule, problem, kernel, cpu_device(), communicator, Direction::kForward);
        forward_only.forward(local.forward(), nullptr, {});
        alone[rank] = forward_only.times().held_bytes;
        Executor executor(schedule, problem, kernel, cpu_device(), communicator);
        const Buffer kept(executor.kept_bytes(), cpu_device());
        for (int pass = 0; pass < 3; ++pass) {
          executor.forward(local.forward(), kept.data(), {});
          held[rank].push_back(executor.times().held_bytes);
          executor.backward(local.backward(), kept.data(), {});
          held[rank].push_back(executor.times().held_bytes);
        }
        for (int pass = 0; pass < 2; ++pass) {  // with forward passes that keep nothing between them
          executor.forward(local.forward(), nullptr, {});
          executor.forward(local.forward(), kept.data(), {});
          executor.backward(local.backward(), kept.data(), {});
          mixed[rank].push_back(executor.times().held_bytes);
        }
      });
      const std::vector<simulate::MemoryUse> simulated[2] = {
          simulate::memory_by_rank(schedule, problem, Direction::kForward, true, false),
          simulate::memory_by_rank(schedule, problem, Direction::kBackward, true, false)};
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(fmt::format("{} {} rank {} of {}", GetParam().name, mask, rank, ranks));
        const std::vector<int64_t>& bytes = held[static_cast<size_t>(rank)];
        const int64_t forward = buffer_bytes(schedule, problem, cost, rank, Direction::kForward);
        const int64_t backward = buffer_bytes(schedule, problem, cost, rank, Direction::kBackward);
        EXPECT_LE(bytes[0], forward);
        // The simulation of memory allocates as the executor does. Buffers of the forward pass may not fit
        // the backward pass's requests, so that more is held than either needs: what is simulated is the
        // bound.
        const bool all_have_heads = bool(GetParam().supports(problem, {1, ranks}, {}));
        for (const Direction until : {Direction::kForward, Direction::kBackward}) {
          if (!all_have_heads) break;
          const simulate::MemoryUse& use =
              simulated[until == Direction::kBackward][static_cast<size_t>(rank)];
          const int64_t measured = until == Direction::kForward ? alone[static_cast<size_t>(rank)] : bytes[1];
          EXPECT_NEAR(static_cast<double>(use.held) / static_cast<double>(measured), 1, 0.1)
              << name_of(until);
          EXPECT_LE(measured, std::max({use.held, forward, backward})) << name_of(until);
          EXPECT_EQ(use.by_round.size(),
                    until == Direction::kForward ? schedule.forward.size() : schedule.backward.size());
          EXPECT_LE(*std::max_element(use.by_round.begin(), use.by_round.end()), use.held);
        }
        for (size_t pass = 2; pass < bytes.size(); ++pass)
          EXPECT_EQ(bytes[pass], bytes[1]) << "pass " << pass << " allocated more";
        const std::vector<int64_t>& both = mixed[static_cast<size_t>(rank)];
        EXPECT_EQ(both[0], both[1]);
      }
    }
  }
}

// The counting oracle over whole sequences: every row sees as many keys as its mask shows, whichever rank
// attends to them.
TEST_P(Executors, CountEveryKeyOnce) {
  const Kernel& kernel = kernel_from_name("cpu-flash");
  ParallelOptions options;
  options.strategy = &GetParam();
  options.topology = {1, 8};
  options.devices = {cpu_device()};
  options.communicators = [](std::span<const Device> devices, milliseconds limit) {
    return thread_communicators(static_cast<int>(devices.size()), limit);
  };
  const auto over = parallel_kernel(kernel, options);
  for (const char* mask : {"causal_document", "share_question", "variable_block_sparse"}) {
    const Problem problem = cp_problem(mask, 4096, 8, 8, 16);
    ASSERT_TRUE(over->supports(problem, Direction::kBackward, cpu_device()));
    const auto plan = over->plan(problem, cpu_device());
    ProblemTensors tensors(problem, Direction::kBackward, cpu_device(), *plan);
    EXPECT_EQ(counting_forward(*plan, problem, tensors), "") << mask;
    EXPECT_EQ(counting_backward(*plan, problem, tensors), "") << mask;
  }
}

TEST_P(Executors, GiveTheOraclesResultOfWholeTensors) {
  ParallelOptions options;
  options.strategy = &GetParam();
  options.topology = {1, 3};
  options.devices = {cpu_device()};
  options.communicators = [](std::span<const Device> devices, milliseconds limit) {
    return thread_communicators(static_cast<int>(devices.size()), limit);
  };
  const auto over = parallel_kernel(kernel_from_name("cpu-flash"), options);
  for (const bool lse_gradient : {false, true}) {
    Problem problem = cp_problem("causal_document", 509, 8, 2);
    problem.lse_gradient = lse_gradient;
    ASSERT_TRUE(over->supports(problem, Direction::kBackward, cpu_device()));
    const auto plan = over->plan(problem, cpu_device());
    EXPECT_EQ(verify(*plan, problem, Direction::kBackward, cpu_device(), {}).failure, "");
  }
}

TEST(Executor, EndsOnAllRanksWhenOneFails) {
  const Problem problem = cp_problem("causal", 256, 8, 2);
  const Schedule schedule = strategy_from_name("ring-p2p").schedule(problem, {1, 4}, {});
  const Kernel& kernel = kernel_from_name("cpu-flash");
  std::vector<std::string> errors(4);
  const auto body = [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    Tensors local(problem, count(schedule.owned[rank]));
    try {
      Executor executor(schedule, problem, kernel, cpu_device(), communicator);
      LONGSPAN_CHECK_INPUT(rank != 1, "power failure");
      executor.forward(local.forward(), nullptr, {});
    } catch (const std::exception& error) {
      errors[rank] = error.what();
      throw;
    }
  };
  EXPECT_THROW(run_thread_ranks(4, milliseconds(30000), body), Error);
  for (size_t rank : {0, 2, 3}) EXPECT_THAT(errors[rank], HasSubstr("rank 1 failed: power failure"));
}

TEST(Executor, KeepsTimesIfAsked) {
  const Problem problem = cp_problem("causal", 256, 8, 2);
  const Schedule schedule = strategy_from_name("ring-p2p").schedule(problem, {1, 2}, {});
  run_thread_ranks(2, milliseconds(30000), [&](Communicator& communicator) {
    for (const auto timing : {Executor::Timing::kOn, Executor::Timing::kOff}) {
      Tensors local(problem, count(schedule.owned[static_cast<size_t>(communicator.rank())]));
      Executor executor(schedule, problem, kernel_from_name("cpu-flash"), cpu_device(), communicator,
                        Direction::kForward, nullptr, timing);
      executor.forward(local.forward(), nullptr, {});
      executor.finish({});
      EXPECT_EQ(executor.times().compute_s > 0, timing == Executor::Timing::kOn);
      EXPECT_GT(executor.times().sent_bytes, 0);
    }
  });
}

// A time limit detects a rank that hangs, on every rank that waits for it.
TEST(Executor, EndsOnAllRanksWhenOneHangs) {
  const Problem problem = cp_problem("causal", 256, 8, 2);
  const Schedule schedule = strategy_from_name("balanced").schedule(problem, {1, 4}, {});
  const Kernel& kernel = kernel_from_name("cpu-flash");
  std::vector<std::string> errors(4);
  std::atomic<int> ended = 0;
  const auto body = [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    Tensors local(problem, count(schedule.owned[rank]));
    Executor executor(schedule, problem, kernel, cpu_device(), communicator);
    if (rank == 2) {
      while (ended < 3) std::this_thread::yield();
      return;
    }
    try {
      executor.forward(local.forward(), nullptr, {});
    } catch (const std::exception& error) {
      errors[rank] = error.what();
      ++ended;
      throw;
    }
    ++ended;
  };
  EXPECT_THROW(run_thread_ranks(4, milliseconds(500), body), Error);
  for (size_t rank : {0, 1, 3}) EXPECT_THAT(errors[rank], HasSubstr("within 500 ms"));
}

}  // namespace
}  // namespace longspan
