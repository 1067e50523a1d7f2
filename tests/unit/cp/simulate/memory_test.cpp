// The memory of simulated passes against closed forms, and properties that hold for every strategy.
#include "cp/simulate/memory.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "cp/schedule/account.h"
#include "cp/strategies/strategy.h"
#include "unit/cp/problems.h"

namespace longspan::simulate {
namespace {

constexpr int kRanks = 4;

std::vector<MemoryUse> memory_of(const std::string& strategy, const Problem& problem, Direction until) {
  const Schedule schedule = strategy_from_name(strategy).schedule(problem, {1, kRanks}, {});
  return memory_by_rank(schedule, problem, until, true);
}

// A ring holds a partial result in fp32, the keys that arrive, and from round 1 on those at hand.
TEST(SimulatedMemory, OfARingIsTwoShardsOfKeysAndAPartialResult) {
  Problem problem = cp_problem("full", 512, 8, 8);
  problem.dtype = DType::kBF16;
  const int64_t rows = 512 / kRanks, elements = rows * 8 * problem.head_dim;
  const int64_t keys = 2 * elements * 2, part = elements * 4 + rows * 8 * 4;
  for (const MemoryUse& use : memory_of("ring-p2p", problem, Direction::kForward)) {
    ASSERT_EQ(use.by_round.size(), size_t{kRanks});
    EXPECT_EQ(use.by_round[0], keys + part);
    for (size_t round = 1; round < kRanks; ++round) EXPECT_EQ(use.by_round[round], 2 * keys + part) << round;
    EXPECT_EQ(use.held, 2 * keys + part);
  }
}

TEST(SimulatedMemory, IsNeverMoreThanWhatIsHeldNorLessThanTheCopies) {
  for (const Strategy& strategy : strategies()) {
    for (const std::string mask : {"full", "causal_document"}) {
      const Problem problem = cp_problem(mask, 512, 8, 8);
      const Schedule schedule = strategy.schedule(problem, {1, kRanks}, {});
      const Cost cost = cost_of(schedule, problem, {1, kRanks});
      for (const Direction until : {Direction::kForward, Direction::kBackward}) {
        const std::vector<MemoryUse> memory = memory_of(std::string(strategy.name), problem, until);
        for (size_t rank = 0; rank < memory.size(); ++rank) {
          const std::vector<int64_t>& used = memory[rank].by_round;
          const int64_t most = *std::max_element(used.begin(), used.end());
          EXPECT_LE(most, memory[rank].held) << strategy.name;
          const int64_t element = static_cast<int64_t>(size_of(problem.dtype));
          EXPECT_GE(most, cost.of(until).peak_elements[rank] * element) << strategy.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace longspan::simulate
