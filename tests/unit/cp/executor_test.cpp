// Every strategy, run on thread ranks, gives the result of a single device: forward and backward.
#include "cp/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "cp/strategy.h"
#include "kernels/registry.h"
#include "spread.h"

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
        if (GetParam().name == "usp" || GetParam().name == "loongtrain")
          options.ulysses_degree = ranks % 2 == 0 ? 2 : 1;
        const Schedule schedule = GetParam().schedule(problem, {1, ranks}, options);
        EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
          check_rank(kernel, problem, schedule, single, communicator, 1e-5);
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

INSTANTIATE_TEST_SUITE_P(All, Executors, ::testing::ValuesIn(strategies().begin(), strategies().end()),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           std::erase(name, '-');
                           return name;
                         });

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
      executor.forward(local.forward(), {});
    } catch (const std::exception& error) {
      errors[rank] = error.what();
      throw;
    }
  };
  EXPECT_THROW(run_thread_ranks(4, milliseconds(30000), body), Error);
  for (size_t rank : {0, 2, 3}) EXPECT_THAT(errors[rank], HasSubstr("rank 1 failed: power failure"));
}

}  // namespace
}  // namespace longspan
