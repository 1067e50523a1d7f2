// Every strategy's schedules are valid and have the theoretical volume, and check() detects broken schedules.
#include "cp/schedule/schedule.h"

#include <functional>
#include <numeric>
#include <set>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cp/schedule/account.h"
#include "cp/strategies/sharding.h"
#include "cp/strategies/stages.h"
#include "cp/strategies/strategy.h"
#include "unit/base/option_samples.h"
#include "unit/cp/problems.h"
#include "unit/cp/strategy_name.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

struct Layout {
  int64_t heads_q, heads_kv;
};
constexpr Layout kLayouts[] = {{8, 8}, {8, 2}, {6, 3}, {8, 1}};

// Every combination of the counts that a strategy reads, from 1 to `ranks`, and every combination of its
// other options.
std::vector<StrategyOptions> all_options(const Strategy& strategy, int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks));
  std::iota(counts.begin(), counts.end(), 1);
  std::vector<StrategyOptions> with_counts(1), with_others(1);
  for (const OptionSpec& option : strategy.options) {
    std::vector<StrategyOptions>& combinations =
        option.kind == OptionKind::kCount ? with_counts : with_others;
    std::vector<StrategyOptions> more;
    for (const StrategyOptions& before : combinations) {
      for (const OptionValue& value : samples_of(option, counts))
        more.push_back(StrategyOptions(before).set(option.name, value));
    }
    combinations = std::move(more);
  }
  // Each combination of counts meets one of the others.
  std::vector<StrategyOptions> all = with_others;
  for (size_t n = 0; n < with_counts.size() && !with_counts[n].empty(); ++n) {
    StrategyOptions options = with_others[n % with_others.size()];
    for (const OptionSpec& option : strategy.options) {
      if (const OptionValue* count = with_counts[n].find(option.name)) options.set(option.name, *count);
    }
    all.push_back(options);
  }
  return all;
}

// "skip no, sharding zigzag"
std::string text_of(const Strategy& strategy, const StrategyOptions& options) {
  std::vector<std::string> parts;
  for (const OptionSpec& option : strategy.options) {
    if (const auto value = options.value_of(option))
      parts.push_back(fmt::format("{} {}", option.name, to_text(*value)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

class Strategies : public ::testing::TestWithParam<Strategy> {};

TEST_P(Strategies, AreValidForEveryMaskAndNumberOfRanks) {
  const Strategy& strategy = GetParam();
  int schedules = 0;
  for (const Pattern& pattern : patterns()) {
    for (Layout layout : kLayouts) {
      const std::string name(pattern.name);
      const Problem problem = cp_problem(name, cp_length(name), layout.heads_q, layout.heads_kv);
      for (int ranks : {1, 2, 3, 4, 6, 8}) {
        for (const StrategyOptions& options : all_options(strategy, ranks)) {
          const Topology topology{1, ranks};
          if (!strategy.supports(problem, topology, options)) continue;
          SCOPED_TRACE(fmt::format("{} {} {}:{} {} ranks, {}", strategy.name, name, layout.heads_q,
                                   layout.heads_kv, ranks, text_of(strategy, options)));
          const Schedule schedule = strategy.schedule(problem, topology, options);
          ASSERT_NO_THROW(check(schedule, problem));
          const auto [forward, backward] = cost_of(schedule, problem, topology);
          int64_t area = 0;
          for (int64_t part : forward.area) area += part;
          ASSERT_EQ(area, problem.area());
          ASSERT_EQ(forward.area, backward.area);
          ++schedules;
        }
      }
    }
  }
  EXPECT_GT(schedules, 100);
}

TEST_P(Strategies, HandleFewerTokensThanRanks) {
  for (int64_t tokens : {1, 2, 5, 17}) {
    const Problem problem = cp_problem("causal", tokens, 8, 8);
    ASSERT_TRUE(GetParam().supports(problem, {1, 8}, {}));
    const Schedule schedule = GetParam().schedule(problem, {1, 8}, {});
    EXPECT_NO_THROW(check(schedule, problem)) << tokens;
  }
}

// At every use the rank still holds what it reads: its own tokens and copies that were not freed.
void expect_held(const Schedule& schedule, Direction direction, int rank, std::string_view what) {
  const auto rounds = rounds_of(schedule, direction, rank);
  const std::vector<int32_t> last = last_uses(schedule, rounds);
  struct Copy {
    Move move;
    int32_t arrival, last;
  };
  std::vector<Copy> copies;
  for (size_t i = 0; i < rounds.size(); ++i) {
    for (const Move& move : rounds[i].copies_in)
      copies.push_back({move, static_cast<int32_t>(i), last[copies.size()]});
  }
  const auto expect_use = [&](Operand operand, int32_t number, size_t at) {
    const Region& region = schedule.regions[number];
    const bool arrives = std::any_of(copies.begin(), copies.end(),
                                     [&](const Copy& copy) { return copy.move.what == operand; });
    if (!arrives) return;  // kept since the forward pass, or all its own
    for (int64_t head = region.heads.begin; head < region.heads.end; ++head) {
      Ranges held = set_of(schedule.owned[static_cast<size_t>(rank)]);
      for (const Copy& copy : copies) {
        const Region& piece = schedule.regions[copy.move.region];
        const auto round = static_cast<int32_t>(at);
        if (copy.move.what == operand && copy.arrival <= round && round <= copy.last &&
            piece.heads.begin <= head && head < piece.heads.end)
          held = united(held, piece.tokens.set());
      }
      ASSERT_TRUE(includes(held, region.tokens.set())) << what << ", rank " << rank << ", round " << at;
    }
  };
  for (size_t i = 0; i < rounds.size(); ++i) {
    for (const Attend& attend : rounds[i].attend) {
      expect_use(Operand::kQ, attend.q, i);
      expect_use(Operand::kKV, attend.kv, i);
    }
    if (i == 0) continue;
    for (const Move& move : rounds[i].copies_out) expect_use(move.what, move.region, i - 1);
  }
}

TEST_P(Strategies, HoldCopiesUntilTheirLastUse) {
  for (const std::string mask : {"full", "causal_document", "share_question"}) {
    const Problem problem = cp_problem(mask, 2048, 8, 4, 32);
    if (!GetParam().supports(problem, {2, 2}, {})) continue;
    const Schedule schedule = GetParam().schedule(problem, {2, 2}, {});
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      for (int rank = 0; rank < schedule.ranks; ++rank) expect_held(schedule, direction, rank, mask);
    }
  }
}

// Most moves are left out where only the use of copies is asked for; the uses must stay the same.
TEST_P(Strategies, UseCopiesAlikeWhateverMovesAreLeftOut) {
  for (const std::string mask : {"full", "causal_document", "share_question"}) {
    const Problem problem = cp_problem(mask, 2048, 8, 4, 32);
    for (const Topology topology : {Topology{2, 2}, Topology{2, 4}}) {
      for (const StrategyOptions& options : all_options(GetParam(), topology.ranks())) {
        if (!GetParam().supports(problem, topology, options)) continue;
        const Schedule schedule = GetParam().schedule(problem, topology, options);
        for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
          const auto all = rounds_by_rank(schedule, direction);
          const auto uses = rounds_by_rank(schedule, direction, RoundParts::kUsesOfCopies);
          for (size_t rank = 0; rank < all.size(); ++rank)
            ASSERT_EQ(last_uses(schedule, all[rank]), last_uses(schedule, uses[rank])) << mask;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Strategies, ::testing::ValuesIn(strategies().begin(), strategies().end()),
                         strategy_name);

// Elements that rank 0 sends; ring volumes do not depend on the rank.
double sent_elements(const Schedule& schedule, Direction direction, const Problem& problem,
                     Operand gradient) {
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  double elements = 0;
  for (const Round& round : rounds) {
    for (const auto* moves : {&round.in, &round.out}) {
      for (const Move& move : *moves) {
        if (move.src != 0) continue;
        const Region& region = schedule.regions[move.region];
        const double rows = static_cast<double>(count(region.tokens) * region.heads.size());
        const bool pair = move.what == Operand::kKV || move.what == gradient;
        elements += rows * static_cast<double>(problem.head_dim) * (pair ? 2 : 1);
      }
    }
  }
  return elements;
}

TEST(Volume, EqualsTheFormulas) {
  for (const auto& [nodes, devices] : {std::pair{1, 8}, {12, 8}, {128, 8}}) {
    const int ranks = nodes * devices;
    const Problem problem = cp_problem("full", int64_t{128} * ranks, 64, 8);
    StrategyOptions options;
    options.set("skip", false);
    const double t = static_cast<double>(problem.tokens_q) / ranks, d = static_cast<double>(problem.head_dim);
    const double hq = 64, hkv = 8, p = ranks;
    auto expect = [&](std::string_view name, int degree, double forward, double backward) {
      SCOPED_TRACE(fmt::format("{} on {} ranks, degree {}", name, ranks, degree));
      if (degree > 0) options.set("ulysses", degree);
      const Strategy& strategy = strategy_from_name(name);
      const Topology topology{nodes, devices};
      ASSERT_TRUE(strategy.supports(problem, topology, options))
          << strategy.supports(problem, topology, options).reason;
      const Schedule schedule = strategy.schedule(problem, topology, options);
      ASSERT_NO_THROW(check(schedule, problem));
      EXPECT_DOUBLE_EQ(sent_elements(schedule, Direction::kForward, problem, Operand::kDkv), forward);
      EXPECT_DOUBLE_EQ(sent_elements(schedule, Direction::kBackward, problem, Operand::kDkv), backward);
    };
    const double ring = 2 * (p - 1) * t * hkv * d;
    if (ranks <= 8) {
      const double exchange = (p - 1) / p * t * d * (2 * hq + 2 * hkv);
      expect("ulysses", 0, exchange, exchange);
    }
    expect("ring-p2p", 0, ring, 2 * ring);
    expect("ring-allgather", 0, ring, 2 * ring);
    for (int u : {2, 8}) {
      const double r = p / u, exchange = (u - 1.0) / u * t * d * (2 * hq + 2 * hkv);
      const double hybrid_ring = 2 * (r - 1) * t * hkv * d;  // u times the tokens, 1 / u of the heads
      expect("usp", u, exchange + hybrid_ring, exchange + 2 * hybrid_ring);
      expect("loongtrain", u, exchange + hybrid_ring, exchange + 2 * hybrid_ring);
    }
  }
}

TEST(Volume, ShrinksWhereTheMaskNeedsLess) {
  const Problem problem = cp_problem("sliding_window_causal", 4096, 8, 8);
  StrategyOptions skipping, sending;
  skipping.set("sharding", "contiguous");
  sending.set("sharding", "contiguous").set("skip", false);
  for (std::string_view name : {"ring-p2p", "ring-allgather"}) {
    auto sent = [&](const StrategyOptions& options) {
      const Schedule schedule = strategy_from_name(name).schedule(problem, {1, 8}, options);
      return sent_elements(schedule, Direction::kForward, problem, Operand::kDkv);
    };
    EXPECT_LT(sent(skipping), 0.2 * sent(sending)) << name;
  }
}

TEST(Volume, OfTheRingStaysWithTwoBuffers) {
  const Problem problem = cp_problem("full", 1024, 8, 2);
  const Schedule schedule = strategy_from_name("ring-p2p").schedule(problem, {1, 8}, {});
  const int64_t kv = 2 * 128 * 2 * problem.head_dim;  // one chunk of k and v
  const PassCost cost = cost_of(schedule, problem, {1, 8}).forward;
  for (int64_t peak : cost.peak_elements) EXPECT_LE(peak, 2 * kv);
}

TEST(Load, OfZigzagShardsIsEqualUnderACausalMask) {
  const Problem problem = cp_problem("causal", 4096, 8, 8);
  StrategyOptions options;
  options.set("sharding", "zigzag");
  const Schedule zigzag = strategy_from_name("ring-p2p").schedule(problem, {1, 8}, options);
  EXPECT_DOUBLE_EQ(cost_of(zigzag, problem, {1, 8}).forward.imbalance, 1);
  options.set("sharding", "contiguous");
  const Schedule contiguous = strategy_from_name("ring-p2p").schedule(problem, {1, 8}, options);
  EXPECT_GT(cost_of(contiguous, problem, {1, 8}).forward.imbalance, 1.8);
}

// Short documents are distributed as a whole, so the pairs of chunks of a zigzag are not equal.
TEST(Load, OfShortDocumentsIsEven) {
  PatternOptions options;
  options.seqlen = 1 << 15;
  Problem problem = cp_problem("full", options.seqlen, 8, 8);
  for (const char* lengths : {"uniform:20:90", "uniform:100:600", "uniform:200:2000"}) {
    options.lengths = lengths;
    problem.masks = std::make_shared<HeadMasks>(draw_mask("causal_document", options).masks);
    for (std::string_view name : {"ring-p2p", "ring-allgather", "balanced"}) {
      for (int ranks : {4, 8}) {
        const Schedule schedule = strategy_from_name(name).schedule(problem, {1, ranks}, {});
        EXPECT_LT(cost_of(schedule, problem, {1, ranks}).forward.imbalance, 1.02)
            << name << " " << lengths << " on " << ranks << " ranks";
      }
    }
  }
}

// Rows of a pass, by rank, times the heads that attend with them.
std::vector<int64_t> rows_times_heads(const Schedule& schedule, const std::vector<Round>& rounds) {
  std::vector<int64_t> sums(static_cast<size_t>(schedule.ranks));
  for (const Round& round : rounds) {
    for (const Attend& attend : round.attend) {
      const Region& q = schedule.regions[attend.q];
      sums[static_cast<size_t>(attend.rank)] += count(q.tokens) * q.heads.size();
    }
  }
  return sums;
}

// In balanced, keys of some heads are sent while other heads attend. No row attends twice with one head, so
// nothing is merged.
TEST(Load, OfBalancedIsEqualForAThousandRanks) {
  for (int ranks : {512, 1024}) {
    PatternOptions options;
    options.seqlen = 8192 * ranks;
    options.lengths = "long-mix";
    Problem problem = cp_problem("full", 64, 8, 1);
    problem.tokens_q = problem.tokens_kv = options.seqlen;
    problem.masks = std::make_shared<HeadMasks>(draw_mask("causal_document", options).masks);
    const Schedule schedule = strategy_from_name("balanced").schedule(problem, {ranks / 8, 8}, {});
    const std::vector<double> until = area_until(problem);
    double most = 0;
    for (const Ranges& owned : schedule.owned) {
      double area = 0;
      for (const Range& range : owned)
        area += until[static_cast<size_t>(range.end)] - until[static_cast<size_t>(range.begin)];
      most = std::max(most, area);
    }
    EXPECT_LE(most, 1.05 * until.back() / ranks) << ranks << " ranks";
  }
}

TEST(Balanced, HidesTravelBehindOtherHeads) {
  PatternOptions options;
  options.seqlen = 1 << 17;
  options.lengths = "long-mix";
  Problem problem = cp_problem("full", options.seqlen, 64, 8, 128);
  problem.dtype = DType::kBF16;
  problem.masks = std::make_shared<HeadMasks>(draw_mask("causal_document", options).masks);
  const Schedule schedule = strategy_from_name("balanced").schedule(problem, {1, 4}, {});
  const std::vector<int64_t> all(4, options.seqlen / 4 * 64);
  ASSERT_GE(schedule.forward.size(), 2u);
  ASSERT_GE(schedule.backward.size(), 2u);
  EXPECT_EQ(rows_times_heads(schedule, schedule.forward), all);
  EXPECT_EQ(rows_times_heads(schedule, schedule.backward), all);
  const auto bytes = [&](const std::vector<Move>& moves) {
    int64_t sum = 0;
    for (const Move& move : moves) sum += bytes_of(move, schedule, problem);
    return sum;
  };
  const auto last = schedule.forward.size() - 1;
  EXPECT_LT(bytes(schedule.forward[0].in), bytes(schedule.forward[last].in));
  EXPECT_GT(bytes(schedule.backward.front().out), bytes(schedule.backward.back().out));
  for (const Round& round : schedule.backward) EXPECT_TRUE(round.in.empty());  // keys were kept
  // Work that takes almost no time is not divided.
  problem = cp_problem("full", 256, 64, 8, 128);
  EXPECT_EQ(strategy_from_name("balanced").schedule(problem, {1, 4}, {}).forward.size(), 1u);
}

// Under a window, neighbouring chunks need hardly any keys of other ranks, and have the same load.
TEST(Balanced, GivesRanksNeighboursUnderAWindow) {
  Problem window = cp_problem("full", 4096, 8, 8);
  PatternOptions options;
  options.seqlen = 4096;
  options.values.set("window", TokenPair{200, {}});  // keys before a row
  window.masks = std::make_shared<HeadMasks>(draw_mask("sliding_window_causal", options).masks);
  const auto owned = strategy_from_name("balanced").schedule(window, {1, 4}, {}).owned;
  for (int64_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(set_of(owned[static_cast<size_t>(rank)]), (Ranges{{1024 * rank, 1024 * (rank + 1)}}));
  // Where neighbours differ in load, they are dealt out.
  const Problem causal = cp_problem("causal", 4096, 8, 8);
  const auto dealt = strategy_from_name("balanced").schedule(causal, {1, 4}, {}).owned;
  for (const Ranges& rank : dealt) EXPECT_GT(set_of(rank).size(), 1u);
}

// Between nodes, rows that see only their own rank's keys attend while the first remote keys arrive.
TEST(Balanced, HidesTravelBetweenNodesBehindRowsThatNeedNone) {
  PatternOptions options;
  options.seqlen = 1 << 18;
  options.lengths = "uniform:200:30000";
  Problem problem = cp_problem("full", options.seqlen, 16, 2, 128);
  problem.dtype = DType::kBF16;
  problem.masks = std::make_shared<HeadMasks>(draw_mask("causal_document", options).masks);
  const Schedule schedule = strategy_from_name("balanced").schedule(problem, {4, 1}, {});
  ASSERT_GE(schedule.forward.size(), 2u);
  EXPECT_TRUE(schedule.forward[0].in.empty());
  EXPECT_FALSE(schedule.forward[0].attend.empty());
  EXPECT_FALSE(schedule.forward[1].in.empty());
  EXPECT_EQ(rows_times_heads(schedule, schedule.forward), std::vector<int64_t>(4, options.seqlen / 4 * 16));
}

TEST(Stages, AreFewAndGrow) {
  const auto sizes = [](const std::vector<Range>& stages) {
    std::vector<int64_t> list;
    for (const Range& stage : stages) list.push_back(stage.size());
    return list;
  };
  // Nothing is sent: one stage.
  EXPECT_EQ(sizes(stages_of(8, {.attend_s = 2e-3})), std::vector<int64_t>{8});
  const PassEstimate forward{.attend_s = 2e-3, .arrive_s = 3e-4}, backward{.attend_s = 7e-3, .leave_s = 6e-4};
  const auto first = stages_of(8, forward);
  ASSERT_GE(first.size(), 2u);
  EXPECT_LT(first.front().size(), first.back().size());
  EXPECT_LT(end_of(first, 8, forward), end_of({{0, 8}}, 8, forward));
  const auto second = stages_of(8, backward);
  EXPECT_GT(second.front().size(), second.back().size());
  // A stage of the backward pass reads data that arrived as one piece. Together, the stages cover each head
  // once.
  for (const int64_t heads : {1, 2, 3, 8, 64}) {
    const auto outer = stages_of(heads, forward), inner = stages_of(heads, backward, outer);
    for (const auto* stages : {&outer, &inner}) {
      EXPECT_EQ(set_of(*stages), (Ranges{{0, heads}}));
      EXPECT_EQ(count(*stages), heads);
    }
    for (const Range& stage : inner) {
      EXPECT_TRUE(std::any_of(outer.begin(), outer.end(),
                              [&](const Range& o) { return o.begin <= stage.begin && stage.end <= o.end; }));
    }
  }
}

TEST(Sharding, FindsTheDocuments) {
  PatternOptions options;
  options.seqlen = 8192;
  const DrawnMask drawn = draw_mask("causal_document", options);
  Problem problem = cp_problem("full", 8192, 1, 1);
  problem.masks = std::make_shared<HeadMasks>(drawn.masks);
  const Ranges blocks = diagonal_blocks(problem);
  ASSERT_EQ(blocks.size(), drawn.document_lengths.size());
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i].size(), drawn.document_lengths[i]);
}

// The series is a colour in every report.
TEST(Strategies, HaveANameAndASeriesOfTheirOwn) {
  std::set<std::string_view> names;
  std::set<int> series;
  for (const Strategy& strategy : strategies()) {
    EXPECT_TRUE(names.insert(strategy.name).second) << strategy.name;
    EXPECT_TRUE(series.insert(strategy.series).second)
        << strategy.name << " has the series of another strategy";
    EXPECT_LT(static_cast<size_t>(strategy.series), strategies().size()) << "the series have a gap";
  }
}

TEST(Strategies, RefuseWithTheReason) {
  const Problem problem = cp_problem("full", 512, 8, 2);
  EXPECT_THAT(strategy_from_name("ulysses").supports(problem, {2, 8}, {}).reason,
              HasSubstr("16 ranks, 8 heads"));
  StrategyOptions options;
  options.set("ulysses", 3);
  EXPECT_THAT(strategy_from_name("usp").supports(problem, {1, 8}, options).reason,
              HasSubstr("does not divide"));
  options.set("ulysses", 2).set("inner_ring", 3);
  EXPECT_THAT(strategy_from_name("loongtrain").supports(problem, {1, 8}, options).reason,
              HasSubstr("inner ring 3 does not divide the ring of 4"));
  try {
    strategy_from_name("rings");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ulysses, ring-p2p, ring-allgather, usp, loongtrain"));
  }
}

// Breaks a schedule in one way and expects check() to report it.
void expect_caught(std::string_view strategy, const char* what, const char* message,
                   const std::function<void(Schedule&)>& damage) {
  SCOPED_TRACE(what);
  const Problem problem = cp_problem("causal", 256, 8, 4);
  StrategyOptions options;
  options.set("skip", false);
  Schedule schedule = strategy_from_name(strategy).schedule(problem, {1, 4}, options);
  ASSERT_NO_THROW(check(schedule, problem));
  damage(schedule);
  try {
    check(schedule, problem);
    ADD_FAILURE() << "not caught";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(Check, FindsWhatIsBroken) {
  expect_caught("ring-p2p", "an attend is missing", "which they never attend to",
                [](Schedule& s) { s.forward[1].attend.pop_back(); });
  expect_caught("ring-p2p", "an attend is done twice", "attend to a key twice",
                [](Schedule& s) { s.forward[1].attend.push_back(s.forward[1].attend.front()); });
  expect_caught("ring-p2p", "a hop is missing", "does not hold it",
                [](Schedule& s) { s.forward[1].in.pop_back(); });
  expect_caught("ring-p2p", "a hop comes from the wrong rank", "does not hold it",
                [](Schedule& s) { s.forward[2].in[0].src = (s.forward[2].in[0].src + 1) % 4; });
  expect_caught("ring-p2p", "a gradient is left behind", "that it does not own",
                [](Schedule& s) { s.backward.back().out.pop_back(); });
  expect_caught("ring-p2p", "a part of a gradient is sent as final", "as final, but rank",
                [](Schedule& s) { s.backward[1].out[0].fp32 = false; });
  // The gradients of one rank are removed together; an error in one of them is still found.
  expect_caught("balanced", "a gradient is left behind", "that it does not own",
                [](Schedule& s) { s.backward.back().out.pop_back(); });
  expect_caught("balanced", "a gradient is sent twice", "has not computed it",
                [](Schedule& s) { s.backward[0].out.push_back(s.backward[0].out.back()); });
  expect_caught("balanced", "a gradient is sent by another rank", "has not computed it",
                [](Schedule& s) { s.backward[0].out.front().src = s.backward[0].out.back().src; });
  expect_caught("ulysses", "an output is left behind", "that it does not own",
                [](Schedule& s) { s.forward[0].out.pop_back(); });
  expect_caught("ulysses", "queries that are not there", "does not hold it", [](Schedule& s) {
    std::erase_if(s.forward[0].in,
                  [](const Move& m) { return m.what == Operand::kQ && m.dst == 1 && m.src == 0; });
  });
  expect_caught("ulysses", "the gradient of o is not sent", "with do of",
                [](Schedule& s) { s.backward[0].in.pop_back(); });
  expect_caught("ulysses", "an operand is not kept for the backward pass", "does not hold it",
                [](Schedule& s) { s.forward[0].in[0].keep = false; });
  expect_caught("ulysses", "an output that was not computed", "has not computed it",
                [](Schedule& s) { std::swap(s.forward[0].out[0].src, s.forward[0].out[0].dst); });
  expect_caught("ulysses", "heads of another group", "attends query heads", [](Schedule& s) {
    s.regions[s.forward[0].attend[0].kv].heads = {1, 2};
  });
  expect_caught("ring-p2p", "a token without an owner", "not a partition",
                [](Schedule& s) { s.owned[0].back().end -= 1; });
}

// All stages of a rank attend to the same tokens, thousands of ranges of them, and keep one list.
TEST(Balanced, SharesListsBetweenStages) {
  const Problem problem = cp_problem("causal", 16384, 64, 8, 128);
  const Schedule schedule = strategy_from_name("balanced").schedule(problem, {8, 8}, {});
  const size_t stages = schedule.backward.size();
  ASSERT_GT(stages, 1u);
  std::set<const void*> identities;
  for (const Region& region : schedule.regions) identities.insert(region.tokens.identity());
  const size_t lists = schedule.backward[0].out.size();
  EXPECT_LE(identities.size(), lists + 4 * static_cast<size_t>(schedule.ranks));
  EXPECT_GT(schedule.regions.size(), stages * lists);
}

TEST(TokenList, KnowsItsSetAndItsNumber) {
  const TokenList list{{8, 12}, {2, 4}, {4, 6}}, set{{2, 6}, {8, 12}}, none;
  EXPECT_EQ(list.set(), set.list());
  EXPECT_EQ(&set.set(), &set.list()) << "a set is not kept twice";
  EXPECT_EQ(list.tokens(), 8);
  EXPECT_EQ(list, (Ranges{{8, 12}, {2, 4}, {4, 6}}));
  EXPECT_FALSE(list == set);
  EXPECT_EQ(set, (TokenList{{2, 6}, {8, 12}})) << "equal lists need not be shared";
  EXPECT_TRUE(none.empty() && none.tokens() == 0 && none.set().empty());
}

TEST(Check, PassesForAThousandRanks) {
  PatternOptions options;
  options.seqlen = 1024 * 1024;
  options.lengths = "prolong512k";
  Problem problem = cp_problem("full", 64, 64, 8, 128);
  problem.tokens_q = problem.tokens_kv = options.seqlen;
  problem.masks = std::make_shared<HeadMasks>(draw_mask("causal_document", options).masks);
  for (std::string_view name : {"ring-p2p", "loongtrain", "balanced"}) {
    const Schedule schedule = strategy_from_name(name).schedule(problem, {128, 8}, {});
    EXPECT_NO_THROW(check(schedule, problem)) << name;
  }
}

}  // namespace
}  // namespace longspan
