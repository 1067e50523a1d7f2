// Additions in the order of a simulated run: each row tile takes its key tiles one by one, and CTAs of any
// pace never wait in a circle.
#include "kernels/sm90/backward/planner/schedule.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/backward/planner/choose_split.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"
#include "unit/kernels/sm90/drawn_problem.h"

namespace longspan::sm90 {
namespace {

constexpr int64_t kUnits = 12;

Problem problem_of(std::string_view name, int64_t seqlen, int64_t heads_q = 8, int64_t heads_kv = 2,
                   int64_t block = 128, double density = 0.3) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:50:900";
  options.kv_heads = heads_kv;
  if (name == "uniform_block_sparse") options.values.set("block", block);
  options.values.set("density", density);
  Problem problem = drawn_problem(name, options, heads_q, heads_kv);
  problem.deterministic = true;
  return problem;
}

BackwardArrangement arranged(const Problem& problem, const BackwardSplit& split, int64_t units = kUnits) {
  BackwardShape shape = choose_backward_shape(problem);
  shape.split = split;
  return arrange_backward(problem, shape, units);
}

BackwardArrangement chosen(const Problem& problem, int64_t units) {
  return arrange_backward(problem, choose_backward_shape(problem), units);
}

// One step of a CTA.
struct Step {
  int32_t place = 0;  // [query heads, row tiles] or, behind them, [KV heads, key tiles] for dk and dv
  int32_t turn = 0;   // that it waits for there
};

// The steps of each CTA, as the kernel goes through its items.
class Ctas {
 public:
  Ctas(const Problem& problem, const BackwardArrangement& all)
      : rows_(choose_backward_shape(problem).rows),
        group_(static_cast<int32_t>(problem.group_size())),
        heads_(static_cast<int32_t>(problem.heads_kv)),
        per_head_(problem.masks->size() > 1),
        all_(all) {
    const int32_t items = all.items.per_list * heads_;
    steps_.resize(static_cast<size_t>(all.schedule.streams));
    for (int32_t cta = 0; cta < all.schedule.streams; ++cta)
      for (int32_t index = cta; index < items; index = all.schedule.next.at(static_cast<size_t>(index))) {
        taken_.push_back(index);
        walk(index, steps_[static_cast<size_t>(cta)]);
      }
  }

  const std::vector<std::vector<Step>>& steps() const { return steps_; }
  const std::vector<int32_t>& taken() const { return taken_; }
  // Pairs of a key tile and a query head's row tile, in order.
  std::vector<std::pair<int32_t, int32_t>> visits() const {
    std::vector<std::pair<int32_t, int32_t>> sorted = visits_;
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }
  int32_t dq_tiles() const { return heads_ * group_ * all_.row_tiles; }

 private:
  void walk(int32_t index, std::vector<Step>& steps) {
    const int32_t per_list = all_.items.per_list, per_section = all_.section_heads * per_list;
    const int32_t section = std::min(index / per_section, all_.last_section);
    const bool last = section == all_.last_section;
    const int32_t first = section * all_.section_heads, heads = last ? heads_ - first : all_.section_heads;
    const int32_t inside = index - section * per_section, kv_head = first + inside % heads;
    const int32_t list =
        (last ? all_.last_list : 0) + (per_head_ ? kv_head * per_list * all_.items.lists : 0);
    const BackwardWork& item = all_.items.work.at(static_cast<size_t>(list + inside / heads));
    const BackwardWalk walk = all_.split.walk;
    uint32_t turn = item.first_turn + all_.schedule.of_head * static_cast<uint32_t>(kv_head);
    const int32_t inner = walk.by_rows ? item.heads : 1;
    for (int32_t h = 0; h < item.heads; h += inner)
      for (int32_t r = 0; r < item.runs; ++r) {
        const DeviceRun& run =
            all_.grid.map
                .runs[item.first_run + static_cast<uint32_t>(walk.descending ? item.runs - 1 - r : r)];
        const int32_t tiles = std::max(run.code, 1);
        for (int32_t t = 0; t < tiles; ++t)
          for (int32_t k = h; k < h + inner; ++k) {
            const int32_t tile = run.column / rows_ + (walk.descending ? tiles - 1 - t : t);
            steps.push_back({(kv_head * group_ + item.first_head + k) * all_.row_tiles + tile,
                             all_.schedule.turns.at(turn++)});
            visits_.emplace_back(kv_head * all_.key_tiles + item.key_tile, steps.back().place);
          }
      }
    if (item.heads > 0 && item.heads < group_)
      steps.push_back({dq_tiles() + kv_head * all_.key_tiles + item.key_tile, item.part});
  }

  int32_t rows_, group_, heads_;
  bool per_head_;
  const BackwardArrangement& all_;
  std::vector<std::vector<Step>> steps_;
  std::vector<int32_t> taken_;
  std::vector<std::pair<int32_t, int32_t>> visits_;
};

// CTAs proceed in any order, each as soon as it is its turn. Returns the number of steps done.
size_t run(const std::vector<std::vector<Step>>& steps, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<size_t> at(steps.size());
  std::map<int32_t, int32_t> turn;
  size_t done = 0;
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<size_t> order(steps.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), generator);
    for (const size_t cta : order)
      for (size_t most = generator() % 40 + 1; most > 0 && at[cta] < steps[cta].size(); --most) {
        const Step& step = steps[cta][at[cta]];
        if (turn[step.place] != step.turn) break;
        ++turn[step.place], ++at[cta], ++done;
        moved = true;
      }
  }
  return done;
}

// Pairs of a key tile and a query head's row tile, in order: what the map says, without a schedule.
std::vector<std::pair<int32_t, int32_t>> visible(const Problem& problem, BackwardSplit split, int64_t units) {
  split.by_time = false;
  const BackwardArrangement all = arranged(problem, split, units);
  const int32_t rows = choose_backward_shape(problem).rows;
  const auto heads = static_cast<int32_t>(problem.heads_kv),
             group = static_cast<int32_t>(problem.group_size());
  std::vector<std::pair<int32_t, int32_t>> visits;
  for (int32_t kv_head = 0; kv_head < heads; ++kv_head)
    for (int32_t i = 0; i < all.items.per_list; ++i) {
      const int32_t mask = problem.masks->size() > 1 ? kv_head : 0;
      const BackwardWork& item =
          all.items.work.at(static_cast<size_t>(mask * all.items.per_list * all.items.lists + i));
      for (int32_t r = 0; r < item.runs; ++r) {
        const DeviceRun& run = all.grid.map.runs[item.first_run + static_cast<uint32_t>(r)];
        for (int32_t t = 0; t < std::max(run.code, 1); ++t)
          for (int32_t h = 0; h < item.heads; ++h)
            visits.emplace_back(
                kv_head * all.key_tiles + item.key_tile,
                (kv_head * group + item.first_head + h) * all.row_tiles + run.column / rows + t);
      }
    }
  std::sort(visits.begin(), visits.end());
  return visits;
}

size_t all_of(const std::vector<std::vector<Step>>& steps) {
  size_t count = 0;
  for (const auto& of_cta : steps) count += of_cta.size();
  return count;
}

void expect_right(const Problem& problem, const BackwardSplit& split, uint32_t seed, int64_t units = kUnits) {
  const BackwardArrangement all = arranged(problem, split, units);
  const int64_t streams = choose_backward_shape(problem).keys == 64 ? 2 : 1;  // of a CTA
  ASSERT_EQ(all.schedule.streams,
            std::min<int64_t>(streams * (units - all.pass_ctas), all.items.per_list * problem.heads_kv));
  const Ctas ctas(problem, all);
  std::vector<int32_t> taken = ctas.taken();
  std::sort(taken.begin(), taken.end());
  std::vector<int32_t> items(static_cast<size_t>(all.items.per_list * problem.heads_kv));
  for (size_t i = 0; i < items.size(); ++i) items[i] = static_cast<int32_t>(i);
  ASSERT_EQ(taken, items) << "each item once";
  std::map<int32_t, std::vector<int32_t>> turns;
  for (const auto& of_cta : ctas.steps())
    for (const Step& step : of_cta) turns[step.place].push_back(step.turn);
  for (auto& [place, of_place] : turns) {
    std::sort(of_place.begin(), of_place.end());
    for (size_t i = 0; i < of_place.size(); ++i)
      ASSERT_EQ(of_place[i], static_cast<int32_t>(i)) << "place " << place;
  }
  ASSERT_EQ(ctas.visits(), visible(problem, split, units)) << "each visible tile, once";
  ASSERT_EQ(run(ctas.steps(), seed), all_of(ctas.steps())) << "CTAs wait for each other";
}

constexpr const char* kPatterns[] = {"full",
                                     "causal",
                                     "causal_document",
                                     "full_document",
                                     "share_question",
                                     "causal_blockwise",
                                     "sliding_window",
                                     "prefix_lm_causal",
                                     "uniform_block_sparse",
                                     "variable_block_sparse"};

RC_GTEST_PROP(BackwardSchedule, LetsAllCtasFinish, ()) {
  const std::string name =
      *rc::gen::elementOf(std::vector<std::string>(std::begin(kPatterns), std::end(kPatterns)));
  const auto seqlen = *rc::gen::inRange<int64_t>(1, 5000);
  const auto heads_kv = *rc::gen::inRange<int64_t>(1, 5), group = *rc::gen::element<int64_t>(1, 2, 4, 8);
  BackwardSplit split{.parts = static_cast<int32_t>(*rc::gen::element<int64_t>(1, 2, 8)),
                      .most_tiles = *rc::gen::element<int64_t>(0, 20, 100),
                      .order = *rc::gen::element(KeyOrder::kOfMap, KeyOrder::kByKeys, KeyOrder::kFromLastKey,
                                                 KeyOrder::kHeaviestFirst),
                      .group_items = *rc::gen::element(0, 1, 5, 32),
                      .last_rounds = *rc::gen::inRange(0, 5),
                      .kv_heads = *rc::gen::inRange(1, 4),
                      .walk = {*rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>()},
                      .by_time = true};
  while (group % split.parts != 0) split.parts /= 2;
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  expect_right(problem_of(name, seqlen, heads_kv * group, heads_kv), split, seed,
               *rc::gen::inRange<int64_t>(1, 40));
  RC_ASSERT(!testing::Test::HasFatalFailure());
}

// Random block-sparse masks, as the planner treats them.
RC_GTEST_PROP(BackwardSchedule, LetsAllCtasFinishInBlockMasks, ()) {
  const std::string name =
      *rc::gen::element(std::string("uniform_block_sparse"), std::string("variable_block_sparse"));
  const auto heads_kv = *rc::gen::inRange<int64_t>(1, 5), group = *rc::gen::element<int64_t>(1, 2, 8);
  const Problem problem =
      problem_of(name, 128 * *rc::gen::inRange<int64_t>(1, 50), heads_kv * group, heads_kv,
                 *rc::gen::element<int64_t>(64, 128), *rc::gen::inRange(1, 100) * 0.01);
  const BackwardSplit split{.parts = static_cast<int32_t>(group), .by_time = true};
  expect_right(problem, split, *rc::gen::arbitrary<uint32_t>(), *rc::gen::inRange<int64_t>(1, 200));
  RC_ASSERT(!testing::Test::HasFatalFailure());
}

TEST(BackwardSchedule, IsRightForWhatIsChosen) {
  for (const auto& [name, seqlen, heads_q, heads_kv] : {std::tuple{"causal_blockwise", 4096, 64, 8},
                                                        {"uniform_block_sparse", 8192, 4, 4},
                                                        {"uniform_block_sparse", 8192, 16, 2},
                                                        {"variable_block_sparse", 8192, 4, 4}}) {
    SCOPED_TRACE(name);
    Problem problem = problem_of(name, seqlen, heads_q, heads_kv);
    PatternOptions options;
    options.seqlen = seqlen;
    if (heads_q == 64) problem.masks = std::make_shared<const HeadMasks>(draw_mask(name, options).masks);
    const BackwardArrangement all = chosen(problem, 132);
    ASSERT_TRUE(all.split.by_time);
    expect_right(problem, all.split, 1, 132);
  }
}

// Tiles of 64 keys, in twice as many streams as CTAs.
TEST(BackwardSchedule, IsRightForStreams) {
  for (const auto& [heads_q, heads_kv] : {std::pair{4, 4}, {16, 2}})
    for (const int64_t units : {1, 13, 132}) {
      const Problem problem = problem_of("uniform_block_sparse", 8192, heads_q, heads_kv, 64);
      ASSERT_EQ(choose_backward_shape(problem).keys, 64);
      const BackwardArrangement all = chosen(problem, units);
      ASSERT_TRUE(all.split.by_time);
      expect_right(problem, all.split, 1, units);
    }
}

// The check above can fail.
TEST(BackwardSchedule, WouldWaitForEverInAnotherOrder) {
  const Problem problem = problem_of("uniform_block_sparse", 4096);
  const BackwardArrangement all = arranged(problem, {.by_time = true});
  const Ctas ctas(problem, all);
  std::map<int32_t, int32_t> count;
  std::vector<std::vector<Step>> steps = ctas.steps();
  for (const auto& of_cta : steps)
    for (const Step& step : of_cta) ++count[step.place];
  for (auto& of_cta : steps)  // the last comes first
    for (Step& step : of_cta) step.turn = count[step.place] - 1 - step.turn;
  EXPECT_LT(run(steps, 1), all_of(steps));
}

TEST(BackwardSchedule, IsTheSameEachTime) {
  for (const char* name : {"causal_document", "uniform_block_sparse"}) {
    const Problem problem = problem_of(name, 4096);
    const BackwardArrangement one = arranged(problem, {.by_time = true}),
                              two = arranged(problem, {.by_time = true});
    EXPECT_EQ(one.schedule.turns, two.schedule.turns) << name;
    EXPECT_EQ(one.schedule.next, two.schedule.next) << name;
  }
}

// Spread visits stall less than those in the order of the map.
TEST(BackwardSchedule, SpreadsVisits) {
  const Problem problem = problem_of("uniform_block_sparse", 49152, 4, 4, 128, 0.1);
  const BackwardArrangement all = arranged(problem, {.last_rounds = 4}, 132);
  SimulatedBy by{.sections = all, .workers = 132, .per_head_masks = true};
  const auto time = [&] { return time_schedule(all.grid.map, all.items, all.split.walk, by); };
  EXPECT_NEAR(time(), 1.19, 0.02);
  by.spread = true;
  EXPECT_NEAR(time(), 1.08, 0.02);
}

// A tile takes a stream longer, so hand-overs cost a smaller share of its time.
TEST(BackwardSchedule, KnowsThatStreamsTakeLongerForATile) {
  const Problem problem = problem_of("uniform_block_sparse", 49152, 4, 4, 64, 0.5);
  const BackwardArrangement all = arranged(problem, {.last_rounds = 4}, 132);
  SimulatedBy by{.sections = all, .workers = 264, .per_head_masks = true, .spread = true};
  const auto time = [&] { return time_schedule(all.grid.map, all.items, all.split.walk, by); };
  const double of_ctas = time();
  by.streams = 2;
  EXPECT_LT(time(), 0.95 * of_ctas);
  EXPECT_NEAR(time(), 1.1, 0.03);
}

// This bounds the time of planning.
TEST(BackwardSchedule, IsNotMadeOfTooManyVisits) {
  const Problem problem = problem_of("uniform_block_sparse", 4096, 4, 4);
  const BackwardShape shape = choose_backward_shape(problem);
  const auto by_time = [&](int64_t visits, int64_t runs) {
    BackwardColumns columns;
    columns.key_tiles = 32, columns.tiles = visits / 4, columns.runs = runs;
    return split_candidates(problem, shape, columns, 132).front().by_time;
  };
  EXPECT_TRUE(by_time(h200::backward::kMaxScheduledVisits, 320));
  EXPECT_FALSE(by_time(h200::backward::kMaxScheduledVisits + 4, 320));
  EXPECT_TRUE(by_time(h200::backward::kFewVisits, 32));
  EXPECT_FALSE(by_time(h200::backward::kFewVisits + 4, 32));
}

// Even where planning costs nothing.
TEST(BackwardSchedule, LeavesDenseMasksTheOrderOfItems) {
  for (const char* name : {"full", "causal", "sliding_window", "causal_document", "share_question"}) {
    const Problem problem = problem_of(name, 8192);
    const BackwardArrangement all = chosen(problem, kUnits);
    EXPECT_FALSE(all.split.by_time) << name;
    EXPECT_EQ(all.schedule.streams, 0) << name;
    EXPECT_TRUE(all.schedule.next.empty()) << name;
    EXPECT_FALSE(all.schedule.turns.empty()) << name;
  }
}

}  // namespace
}  // namespace longspan::sm90
