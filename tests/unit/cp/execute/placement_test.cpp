// Direct placement, for strategies whose data is known to allow it.
#include "cp/execute/placement.h"

#include <gtest/gtest.h>

#include "cp/strategies/strategy.h"
#include "unit/cp/problems.h"

namespace longspan {
namespace {

struct Rank {
  Rank(std::string_view strategy, const Problem& problem, Direction direction, int ranks = 4, int rank = 1)
      : schedule(strategy_from_name(strategy).schedule(problem, {1, ranks}, {})),
        rounds(rounds_of(schedule, direction, rank)),
        owned(schedule.owned[static_cast<size_t>(rank)]),
        results(results_of(schedule, direction, rounds)),
        in_place(results_in_place(schedule, rounds, owned)) {}

  Schedule schedule;
  std::vector<RankRound> rounds;
  Ranges owned;
  std::vector<std::vector<Results>> results;
  std::vector<std::vector<bool>> in_place;
};

TEST(Placement, OfUlyssesLeavesNothingToBePacked) {
  const Problem problem = cp_problem("causal", 1024, 8, 4);
  const Rank forward("ulysses", problem, Direction::kForward);
  const auto landings = landings_of(forward.schedule, forward.rounds[0], forward.owned);
  ASSERT_EQ(landings.size(), 2u);  // q and kv of all tokens
  for (const Landing& landing : landings) {
    EXPECT_TRUE(landing.with_own);
    EXPECT_EQ(landing.arrivals.size(), 3u);
    EXPECT_EQ(count(forward.schedule.regions[landing.region].tokens), 1024);
    // Rank 1's own rows lie between those of rank 0 and rank 2.
    std::vector<int64_t> rows;
    for (const Landing::Arrival& arrival : landing.arrivals) rows.push_back(arrival.row);
    EXPECT_EQ(rows, (std::vector<int64_t>{0, 512, 768}));
  }
  const Result& o = forward.results[0][0].rows;
  EXPECT_TRUE(o.first && o.last && o.complete);
  EXPECT_EQ(forward.in_place[0], std::vector<bool>(3, true));  // the other ranks' heads of this rank's tokens

  const Rank backward("ulysses", problem, Direction::kBackward);
  EXPECT_TRUE(backward.results[0][0].rows.complete);
  EXPECT_TRUE(backward.results[0][0].keys.complete);
  for (const auto& taken : backward.in_place)
    for (const bool in_place : taken) EXPECT_TRUE(in_place);
}

TEST(Placement, OfARingCompletesRowsInTheLastRound) {
  const Problem problem = cp_problem("full", 1024, 8, 4);
  const Rank forward("ring-p2p", problem, Direction::kForward);
  ASSERT_EQ(forward.results.size(), 4u);
  for (size_t round = 0; round < 4; ++round) {
    ASSERT_EQ(forward.results[round].size(), 1u);
    const Result& rows = forward.results[round][0].rows;
    EXPECT_EQ(rows.first, round == 0);
    EXPECT_EQ(rows.last, round == 3);
    EXPECT_TRUE(rows.complete);
    EXPECT_TRUE(landings_of(forward.schedule, forward.rounds[round], forward.owned).empty());
  }
  // Gradients of keys are sums over all ranks' parts.
  const Rank backward("ring-p2p", problem, Direction::kBackward);
  for (const auto& round : backward.results) EXPECT_FALSE(round[0].keys.complete);
  for (const auto& taken : backward.in_place)
    for (const bool in_place : taken) EXPECT_FALSE(in_place);
}

TEST(Placement, OfAnAllGatherReceivesKeysWhereTheyAreRead) {
  const Problem problem = cp_problem("full", 1024, 8, 4);
  const Rank forward("ring-allgather", problem, Direction::kForward);
  const auto landings = landings_of(forward.schedule, forward.rounds[0], forward.owned);
  ASSERT_EQ(landings.size(), 1u);
  EXPECT_EQ(landings[0].what, Operand::kKV);
  EXPECT_EQ(landings[0].arrivals.size(), 3u);
  EXPECT_TRUE(landings[0].with_own);
  const Rank backward("ring-allgather", problem, Direction::kBackward);
  EXPECT_TRUE(backward.results[0][0].rows.complete);
  EXPECT_FALSE(backward.results[0][0].keys.complete);
}

// If query heads of a group are on different ranks, a rank attends twice, and two ranks have parts of a KV
// head's gradient.
TEST(Placement, OfDividedGroupsIsNotTakenForComplete) {
  const Problem problem = cp_problem("causal", 1024, 8, 2);
  const Rank backward("ulysses", problem, Direction::kBackward, 3);
  ASSERT_EQ(backward.results[0].size(), 2u);
  for (const Results& results : backward.results[0]) {
    EXPECT_TRUE(results.rows.complete && results.rows.first && results.rows.last);
    EXPECT_FALSE(results.keys.complete);
  }
}

bool meet(const Region& a, const Region& b) {
  return a.heads.begin < b.heads.end && b.heads.begin < a.heads.end &&
         overlap(a.tokens.set(), b.tokens.set());
}

// What results_of finds by an index, by comparing each with each.
Result compared(const Schedule& schedule, size_t number, const std::vector<int32_t>& attended,
                const std::vector<int32_t>& open) {
  const Region& region = schedule.regions[attended[number]];
  Result result{true, true, true};
  for (const int32_t part : open) result.complete = result.complete && !meet(schedule.regions[part], region);
  for (size_t i = 0; i < attended.size(); ++i) {
    const Region& other = schedule.regions[attended[i]];
    if (i == number || !meet(other, region)) continue;
    (i < number ? result.first : result.last) = false;
    result.complete = result.complete && other == region;
  }
  return result;
}

TEST(Placement, OfEveryStrategyIsThatOfComparingAllRegions) {
  const Problem problem = cp_problem("causal_document", 2048, 8, 4, 32);
  for (const Strategy& strategy : strategies()) {
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (const Rank& rank :
           {Rank(strategy.name, problem, direction), Rank(strategy.name, problem, direction, 4, 2)}) {
        std::vector<int32_t> rows, keys, open_rows, open_keys;
        for (const RankRound& round : rank.rounds) {
          for (const Attend& attend : round.attend) rows.push_back(attend.q), keys.push_back(attend.kv);
          for (const auto* moves : {&round.taken, &round.given}) {
            for (const Move& move : *moves) {
              if (moves == &round.taken || move.fp32)
                (move.what == Operand::kDkv ? open_keys : open_rows).push_back(move.region);
            }
          }
        }
        const auto expect_equal = [&](const Result& is, const Result& should) {
          EXPECT_EQ(is.first, should.first) << strategy.name;
          EXPECT_EQ(is.last, should.last) << strategy.name;
          EXPECT_EQ(is.complete, should.complete) << strategy.name;
        };
        size_t number = 0;
        for (const std::vector<Results>& round : rank.results) {
          for (const Results& results : round) {
            expect_equal(results.rows, compared(rank.schedule, number, rows, open_rows));
            if (direction == Direction::kBackward)
              expect_equal(results.keys, compared(rank.schedule, number, keys, open_keys));
            ++number;
          }
        }
        EXPECT_EQ(number, rows.size());
      }
    }
  }
}

}  // namespace
}  // namespace longspan
