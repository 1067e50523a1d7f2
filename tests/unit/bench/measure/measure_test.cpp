// The timing rule on scripted times: when it stops, and what it keeps.
#include "bench/measure/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_time.h"

namespace longspan::bench {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

TimingRule rule_without_warmup() {
  TimingRule rule;
  rule.warmup_s = 0;
  rule.min_time_s = 0;
  return rule;
}

TEST(Measure, WarmsUpForItsTimeAndAtLeastOnce) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.1}});
  TimingRule rule = rule_without_warmup();
  rule.warmup_s = 0.25;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_EQ(stopwatch.runs, 3 + m.samples_s.size());

  FakeStopwatch slow(clock, {{7}});
  rule.warmup_s = 0;
  rule.budget_s = 0;
  EXPECT_THAT(measure([] {}, slow, clock, rule).samples_s, ElementsAre(7));
  EXPECT_EQ(slow.runs, 2u);
}

TEST(Measure, StopsAtTheFewestSamplesWhenTheyAgree) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.01}});
  TimingRule rule = rule_without_warmup();
  rule.min_samples = 12;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.samples_s, SizeIs(12));
  EXPECT_TRUE(m.converged);
  EXPECT_EQ(m.median_s, 0.01);
  EXPECT_EQ(m.interval_s, (Interval{0.01, 0.01}));
}

// A GPU lowers its clock some tenths of a second into a load: a kernel must not be done before.
TEST(Measure, SamplesForTheLeastTimeThoughTheyAgree) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.125}});
  TimingRule rule = rule_without_warmup();
  rule.min_time_s = 2;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.samples_s, SizeIs(16));
  EXPECT_TRUE(m.converged);

  rule.max_samples = 11;
  EXPECT_THAT(measure([] {}, stopwatch, clock, rule).samples_s, SizeIs(11));
  rule.max_samples = 1000;
  rule.budget_s = 1;  // ends it sooner
  EXPECT_THAT(measure([] {}, stopwatch, clock, rule).samples_s, SizeIs(8));
}

// Alternating 1 and 1.2: the interval of the median never becomes narrow.
TEST(Measure, EndsWithTheBudgetAndSaysThatItDidNotConverge) {
  FakeClock clock;
  std::vector<Sample> script;
  for (int i = 0; i < 2000; ++i) script.push_back({i % 2 == 0 ? 1.0 : 1.2});
  FakeStopwatch stopwatch(clock, script);
  TimingRule rule = rule_without_warmup();
  rule.budget_s = 110;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.samples_s, SizeIs(100));
  EXPECT_FALSE(m.converged);
  EXPECT_EQ(m.interval_s, (Interval{1.0, 1.2}));
}

TEST(Measure, TheBudgetIncludesCacheEviction) {
  FakeClock clock;
  std::vector<Sample> script;
  for (int i = 0; i < 2000; ++i) script.push_back({i % 2 == 0 ? 1.0 : 1.2});
  FakeStopwatch stopwatch(clock, script, 9.9);
  TimingRule rule = rule_without_warmup();
  rule.budget_s = 110;
  EXPECT_THAT(measure([] {}, stopwatch, clock, rule).samples_s, SizeIs(10));
}

TEST(Measure, NeverExceedsTheMaximumOfSamples) {
  FakeClock clock;
  std::vector<Sample> script;
  for (int i = 0; i < 2000; ++i) script.push_back({i % 2 == 0 ? 1.0 : 1.2});
  FakeStopwatch stopwatch(clock, script);
  TimingRule rule = rule_without_warmup();
  rule.budget_s = 1e6;
  rule.max_samples = 33;
  EXPECT_THAT(measure([] {}, stopwatch, clock, rule).samples_s, SizeIs(33));
}

TEST(Measure, StopsAsSoonAsTheIntervalIsNarrowEnough) {
  FakeClock clock;
  // Three outliers, then equal samples. The rank-r interval drops r - 1 samples at each end. With three high
  // ones it closes once the rank is 4, at 15 samples (Conover's table: rank 4 from n = 15).
  std::vector<Sample> script{{1}, {9}, {9}, {9}, {1}};
  FakeStopwatch stopwatch(clock, script);
  TimingRule rule = rule_without_warmup();
  rule.min_samples = 6;
  rule.budget_s = 1e6;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.samples_s, SizeIs(15));
  EXPECT_TRUE(m.converged);
  EXPECT_EQ(m.median_s, 1);
}

TEST(Measure, ExcludesAndRetakesThrottledSamples) {
  FakeClock clock;
  std::vector<Sample> script{{1}, {1}, {5, true}, {1}, {6, true}, {1}};
  FakeStopwatch stopwatch(clock, script);
  TimingRule rule = rule_without_warmup();
  rule.min_samples = 8;
  rule.budget_s = 1e6;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.samples_s, SizeIs(8));
  EXPECT_THAT(m.samples_s, Each(1));
  EXPECT_THAT(m.throttled_samples_s, ElementsAre(5, 6));
  EXPECT_TRUE(m.converged);
}

TEST(Measure, KeepsThrottledSamplesIfThereAreNoOthers) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{2, true}});
  TimingRule rule = rule_without_warmup();
  rule.budget_s = 19;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.samples_s, SizeIs(10));
  EXPECT_THAT(m.throttled_samples_s, SizeIs(10));
  EXPECT_EQ(m.median_s, 2);
  EXPECT_FALSE(m.converged);
}

TEST(Measure, TakesRowsOfTheStopwatchsLength) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.25}});
  stopwatch.row_s = 1;
  TimingRule rule = rule_without_warmup();
  rule.warmup_s = 1.5;
  rule.budget_s = 100;
  rule.min_samples = 9;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  // Warm-up: one sample, then as many as fit in the remaining time. Then whole rows until nine agree.
  EXPECT_THAT(stopwatch.rows, ElementsAre(4, 1, 4, 4, 4));
  EXPECT_THAT(m.samples_s, SizeIs(12));
  EXPECT_TRUE(m.converged);
}

TEST(Measure, ARowEndsWithTheBudgetAndTheMaximumOfSamples) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.25}});
  stopwatch.row_s = 10;
  TimingRule rule = rule_without_warmup();
  rule.budget_s = 2;
  rule.min_samples = 1000;
  EXPECT_THAT(measure([] {}, stopwatch, clock, rule).samples_s, SizeIs(8));
  rule.budget_s = 100;
  rule.max_samples = 13;
  EXPECT_THAT(measure([] {}, stopwatch, clock, rule).samples_s, SizeIs(13));
}

TEST(Measure, AThrottledRowIsExcludedAsAWhole) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.25}, {1, true}, {1, true}, {0.25}});
  stopwatch.row_s = 0.5;
  TimingRule rule = rule_without_warmup();
  rule.budget_s = 100;
  const Measurement m = measure([] {}, stopwatch, clock, rule);
  EXPECT_THAT(m.throttled_samples_s, ElementsAre(1, 1));
  EXPECT_THAT(m.samples_s, Each(0.25));
  EXPECT_TRUE(m.converged);
}

TEST(Measure, RunsTheWorkOncePerSample) {
  FakeClock clock;
  FakeStopwatch stopwatch(clock, {{0.5}});
  size_t runs = 0;
  measure([&] { ++runs; }, stopwatch, clock, rule_without_warmup());
  EXPECT_EQ(runs, stopwatch.runs);
}

}  // namespace
}  // namespace longspan::bench
