// Ranks with different numbers of tokens, or none; few tokens; heads that do not divide; several masks.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "comm/threads.h"
#include "cp/strategies/strategy.h"
#include "kernels/registry.h"
#include "unit/cp/spread.h"
#include "unit/cp/strategy_name.h"

namespace longspan {
namespace {

using std::chrono::milliseconds;

// Deals tokens in chunks of random lengths, in random order; the last rank gets none.
std::vector<Ranges> drawn_placement(int64_t tokens, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Ranges> owned(static_cast<size_t>(ranks));
  Ranges chunks;
  for (int64_t at = 0; at < tokens;) {
    const int64_t end = std::min<int64_t>(tokens, at + 1 + static_cast<int64_t>(random() % 60));
    chunks.push_back({at, end});
    at = end;
  }
  std::shuffle(chunks.begin(), chunks.end(), random);
  for (const Range& chunk : chunks)
    owned[random() % static_cast<size_t>(std::max(1, ranks - 1))].push_back(chunk);
  return owned;
}

class Uneven : public ::testing::TestWithParam<Strategy> {
 protected:
  void run(const Problem& problem, const std::vector<Ranges>& owned, int ranks) {
    const Kernel& kernel = kernel_from_name("cpu-flash");
    Tensors single = draw(problem);
    run_single(kernel, problem, single);
    const Schedule schedule = GetParam().schedule(problem, {1, ranks}, {}, owned);
    ASSERT_NO_THROW(check(schedule, problem));
    EXPECT_NO_THROW(run_thread_ranks(ranks, milliseconds(60000), [&](Communicator& communicator) {
      check_rank(kernel, problem, schedule, single, communicator, 1e-5, 1);
      WithoutRows without(communicator);
      check_rank(kernel, problem, schedule, single, without, 1e-5, 1);
    }));
  }
};

TEST_P(Uneven, PlacementsOfAnyKind) {
  for (const char* mask : {"causal", "causal_document", "sliding_window", "share_question"}) {
    for (const int ranks : {2, 3, 4}) {
      for (auto [heads_q, heads_kv] : {std::pair{8, 4}, {6, 3}}) {
        SCOPED_TRACE(fmt::format("{} {}:{} on {} ranks", mask, heads_q, heads_kv, ranks));
        const auto owned = drawn_placement(509, ranks, static_cast<unsigned>(ranks));
        run(cp_problem(mask, 509, heads_q, heads_kv), owned, ranks);
      }
    }
  }
}

TEST_P(Uneven, FewTokens) {
  for (auto [tokens, ranks] : {std::pair{7, 2}, {3, 4}, {1, 2}, {1, 3}}) {
    for (auto [heads_q, heads_kv] : {std::pair{5, 5}, {6, 3}, {7, 1}}) {
      SCOPED_TRACE(fmt::format("{} tokens, {}:{} on {} ranks", tokens, heads_q, heads_kv, ranks));
      run(cp_problem("causal", tokens, heads_q, heads_kv), {}, ranks);
    }
  }
}

TEST_P(Uneven, HeadsThatDoNotDivide) {
  for (auto [heads_q, heads_kv] : {std::pair{5, 5}, {9, 3}, {10, 5}, {7, 1}}) {
    for (const int ranks : {2, 3, 4, 5}) {
      SCOPED_TRACE(fmt::format("{}:{} on {} ranks", heads_q, heads_kv, ranks));
      run(cp_problem("causal_document", 301, heads_q, heads_kv), {}, ranks);
    }
  }
}

// The attends of a rank write their gradients in place; the gradients of its other keys are zeros.
TEST_P(Uneven, KeysThatNoRowSees) {
  Problem problem = cp_problem("causal", 64, 6, 3);
  problem.set_mask(Mask(64, 64, {Band{{0, 32}, {0, 16}}, Band{{32, 64}, {40, 64}}}));
  for (const int ranks : {2, 4}) {
    std::vector<Ranges> owned;
    for (int rank = 0; rank < ranks; ++rank) owned.push_back({part_of(Range{0, 64}, rank, ranks)});
    SCOPED_TRACE(ranks);
    run(problem, owned, ranks);
  }
}

// A model with window layers and full layers: one placement, made for the full ones.
TEST_P(Uneven, SeveralMasksOnOnePlacement) {
  for (const int ranks : {3, 4}) {
    const Problem full = cp_problem("causal", 509, 8, 2);
    const auto owned = GetParam().schedule(full, {1, ranks}, {}).owned;
    for (const char* mask : {"causal", "sliding_window", "causal_document", "prefix_lm_document"}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", mask, ranks));
      run(cp_problem(mask, 509, 8, 2), owned, ranks);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Uneven, ::testing::ValuesIn(strategies().begin(), strategies().end()),
                         strategy_name);

}  // namespace
}  // namespace longspan
