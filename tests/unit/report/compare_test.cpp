// Verdicts on samples with a known answer.
#include "report/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lines.h"
#include "report/bootstrap.h"

namespace longspan::report {
namespace {

using test::case_json, test::run_json, test::text_of, test::unmeasured_json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return median(values);
}

// A case whose samples scatter lognormally around `time_s`.
nlohmann::json sampled(const std::string& mask, double time_s, double noise, int count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) samples.push_back(time_s * std::exp(noise * normal(generator)));
  auto line = case_json("cpu-flash", mask, median_of(samples));
  line["measurements"][0]["median_s"] = median_of(samples);
  line["measurements"][0]["samples_s"] = samples;
  return line;
}

template <class... Lines>
Results results(const Lines&... lines) {
  return parse_results(text_of(run_json(), lines...), "r.jsonl");
}

TEST(Bootstrap, MedianOfOneAndOfEquals) {
  std::mt19937_64 generator(1);
  EXPECT_EQ(resampled_middle(1, generator).median_of(std::vector<double>{3}), 3);
  EXPECT_EQ(resampled_middle(4, generator).median_of(std::vector<double>{2, 2, 2, 2}), 2);
}

// Two cases of equal counts draw different replicates for their sides, or their noise would cancel.
TEST(Bootstrap, StreamsDiffer) {
  Bootstrap bootstrap(100, 42), same(100, 42), other(100, 43);
  const auto lowers = [](const std::vector<MiddlePlaces>& places) {
    std::vector<uint32_t> list;
    for (const MiddlePlaces& one : places) list.push_back(one.lower);
    return list;
  };
  const auto first = lowers(bootstrap.places(0, 50));
  EXPECT_THAT(first, SizeIs(100));
  EXPECT_EQ(first, lowers(bootstrap.places(0, 50)));
  EXPECT_EQ(first, lowers(same.places(0, 50)));
  EXPECT_NE(first, lowers(bootstrap.places(1, 50)));
  EXPECT_NE(first, lowers(other.places(0, 50)));
}

// Compared with actual resampling: draw n of n with replacement and take the median. Odd and even counts.
TEST(Bootstrap, HasTheDistributionOfResampling) {
  for (size_t n : {5u, 6u, 20u, 41u}) {
    std::vector<double> sorted;
    for (size_t i = 0; i < n; ++i) sorted.push_back(std::pow(1.1, static_cast<double>(i)));
    constexpr int kDraws = 40000;
    std::mt19937_64 generator(n);
    std::vector<double> direct, drawn;
    for (int i = 0; i < kDraws; ++i) {
      std::vector<double> resample;
      for (size_t j = 0; j < n; ++j) resample.push_back(sorted[generator() % n]);
      direct.push_back(median_of(std::move(resample)));
      drawn.push_back(resampled_middle(n, generator).median_of(sorted));
    }
    std::sort(direct.begin(), direct.end());
    std::sort(drawn.begin(), drawn.end());
    // The largest distance between the two distribution functions, at every value of either.
    double distance = 0;
    for (const auto& values : {direct, drawn}) {
      for (double x : values) {
        const auto below = [&](const std::vector<double>& v) {
          return static_cast<double>(std::upper_bound(v.begin(), v.end(), x * (1 + 1e-12)) - v.begin()) /
                 kDraws;
        };
        distance = std::max(distance, std::fabs(below(direct) - below(drawn)));
      }
    }
    EXPECT_LT(distance, 0.02) << n << " samples";  // Kolmogorov and Smirnov at one in a million: 0.019
  }
}

TEST(Compare, NamesTheVerdict) {
  const Results a =
      results(sampled("full", 1.0, 0.01, 100, 1), sampled("causal", 1.0, 0.01, 100, 2),
              sampled("sliding_window", 1.0, 0.01, 100, 3), sampled("share_question", 1.0, 0.3, 20, 4));
  const Results b =
      results(sampled("full", 0.8, 0.01, 100, 5), sampled("causal", 1.25, 0.01, 100, 6),
              sampled("sliding_window", 1.0, 0.01, 100, 7), sampled("share_question", 1.0, 0.3, 20, 8));
  const CompareReport report = compare(a, b, {});
  ASSERT_THAT(report.both, SizeIs(4));
  EXPECT_EQ(report.both[0].verdict, Verdict::kFaster);
  EXPECT_NEAR(report.both[0].ratio, 1.25, 0.02);
  EXPECT_LE(report.both[0].interval->lo, report.both[0].ratio);
  EXPECT_GE(report.both[0].interval->hi, report.both[0].ratio);
  EXPECT_EQ(report.both[1].verdict, Verdict::kSlower);
  EXPECT_EQ(report.both[2].verdict, Verdict::kSame);
  EXPECT_EQ(report.both[3].verdict, Verdict::kAmbiguous);
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST(Compare, VerdictsByTheInterval) {
  EXPECT_EQ(verdict_of({1.01, 1.05}, 0.02), Verdict::kFaster);
  EXPECT_EQ(verdict_of({0.9, 0.999}, 0.02), Verdict::kSlower);
  EXPECT_EQ(verdict_of({1.005, 1.015}, 0.02), Verdict::kSame) << "a difference that does not matter";
  EXPECT_EQ(verdict_of({0.95, 1.01}, 0.02), Verdict::kAmbiguous);
  EXPECT_EQ(verdict_of({0.9, 1.1}, 0.02), Verdict::kAmbiguous);
}

// Two samples of the same machine: the interval must contain 1 about as often as its confidence says.
TEST(Compare, TheIntervalCoversWhatItSays) {
  int covered = 0;
  constexpr int kTrials = 400;
  for (int i = 0; i < kTrials; ++i) {
    const Results a = results(sampled("full", 1, 0.05, 25, 1000 + 2 * static_cast<uint64_t>(i)));
    const Results b = results(sampled("full", 1, 0.05, 25, 1001 + 2 * static_cast<uint64_t>(i)));
    Bootstrap bootstrap(500, 42);
    const auto interval = ratio_interval(a.cases[0], b.cases[0], 0.95, bootstrap);
    covered += interval->lo <= 1 && 1 <= interval->hi;
  }
  EXPECT_GE(covered, 0.91 * kTrials);
}

TEST(Compare, IsTheSameEveryTime) {
  const Results a = results(sampled("full", 1, 0.1, 30, 1)), b = results(sampled("full", 1, 0.1, 30, 2));
  Bootstrap one(2000, 42), another(2000, 42);
  const auto first = ratio_interval(a.cases[0], b.cases[0], 0.95, one),
             second = ratio_interval(a.cases[0], b.cases[0], 0.95, another);
  EXPECT_EQ(first->lo, second->lo);
  EXPECT_EQ(first->hi, second->hi);
}

TEST(Compare, WithoutSamplesTheRecordedIntervalsCombine) {
  const Results a = results(case_json("k", "full", 1.0)), b = results(case_json("k", "full", 0.5));
  Bootstrap bootstrap(2000, 42);
  const auto interval = ratio_interval(a.cases[0], b.cases[0], 0.95, bootstrap);
  ASSERT_TRUE(interval.has_value());
  EXPECT_NEAR(interval->lo, 2 * std::exp(-std::hypot(std::log(1 / 0.99), std::log(1.02))), 1e-9);
  EXPECT_NEAR(interval->hi, 2 * std::exp(std::hypot(std::log(1.02), std::log(1 / 0.99))), 1e-9);
}

TEST(Compare, WithNothingToGoByItIsAmbiguous) {
  auto bare = case_json("k", "full", 1.0);
  bare.erase("interval_s");
  const Results a = results(bare), b = results(case_json("k", "full", 0.5));
  const CompareReport report = compare(a, b, {});
  EXPECT_FALSE(report.both[0].interval.has_value());
  EXPECT_EQ(report.both[0].verdict, Verdict::kAmbiguous);
  EXPECT_THAT(report.below(2.5), SizeIs(1)) << "a gate goes by the ratio, 2";
  EXPECT_THAT(report.below(1.5), IsEmpty());
}

TEST(Compare, ListsWhatOnlyOneHasMeasured) {
  const Results a =
      results(case_json("k", "full", 1), case_json("k", "causal", 1), case_json("k", "sliding_window", 1));
  const Results b = results(case_json("k", "full", 1), unmeasured_json("k", "causal", "failed", "hung"),
                            case_json("k", "share_question", 1));
  const CompareReport report = compare(a, b, {});
  EXPECT_THAT(report.both, SizeIs(1));
  ASSERT_THAT(report.only_a, SizeIs(2));
  EXPECT_EQ(report.only_a[0].a->workload.mask, "causal");
  EXPECT_EQ(report.only_a[0].why(), "failed in B: hung");
  EXPECT_EQ(report.only_a[1].why(), "missing in B");
  ASSERT_THAT(report.only_b, SizeIs(1));
  EXPECT_EQ(report.only_b[0]->workload.mask, "share_question");
  const std::string text = format_comparison(report, {}, {});
  EXPECT_THAT(text, HasSubstr("Measured in A only\n  k causal 4K forward f32 8:2x128: failed in B: hung\n"));
}

TEST(Compare, RefusesSetsWithoutACommonCase) {
  const Results none = parse_results(text_of(run_json()), "r.jsonl"), a = results(case_json("k", "full", 1));
  EXPECT_THAT([&] { compare(a, none, {}); }, testing::ThrowsMessage<Error>(HasSubstr("B has no case")));
  EXPECT_THAT([&] { compare(none, a, {}); }, testing::ThrowsMessage<Error>(HasSubstr("A has no case")));
  EXPECT_THAT([&] { compare(a, results(case_json("k", "causal", 1)), {}); },
              testing::ThrowsMessage<Error>(HasSubstr("no case in common")));
}

// A folder of two machines' files: what the second cannot run was still measured on the first.
TEST(Compare, OfSeveralFilesTheLastThatMeasuredCounts) {
  const auto file = [](const nlohmann::json& line, const std::string& run) {
    auto of_run = line;
    of_run["run"] = run;
    return text_of(run_json(run), of_run);
  };
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("longspan-compare-" + std::to_string(std::random_device{}()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "1.jsonl") << file(case_json("k", "full", 1), "1");
  std::ofstream(folder / "2.jsonl") << file(unmeasured_json("k", "full", "skipped", "needs a GPU"), "2");
  const Results b = read_results({folder / "1.jsonl", folder / "2.jsonl"});
  const CompareReport report = compare(results(case_json("k", "full", 1)), b, {});
  EXPECT_THAT(report.both, SizeIs(1));
  EXPECT_THAT(report.only_a, IsEmpty());
  std::filesystem::remove_all(folder);
}

// Their ratio is no number, which must not pass as one that is not below the bound.
TEST(Compare, TimesWithoutARatioAreBelowAnyBound) {
  auto a = sampled("full", 1, 0, 6, 1), b = a;
  auto endless = std::vector<double>(6, 1e308);
  for (auto* line : {&a, &b}) {
    (*line)["measurements"] = {{{"index", 0}, {"median_s", 1e308}, {"samples_s", endless}},
                               {{"index", 1}, {"median_s", 1e308}, {"samples_s", endless}}};
  }
  b["interval_s"] = nullptr;
  b["time_s"] = 2;
  const Results first = results(a), second = results(b);
  Bootstrap bootstrap(2000, 42);
  EXPECT_FALSE(ratio_interval(first.cases[0], second.cases[0], 0.95, bootstrap).has_value());
  EXPECT_THAT(compare(first, second, {}).below(0.9), SizeIs(1));
}

TEST(Compare, WarnsOfAnotherMachineAndAnotherCeiling) {
  auto run = run_json();
  run["device"]["name"] = "Another CPU";
  run["ceilings"]["f32"]["flops_per_s"] = 0.8e11;
  const Results a = results(case_json("k", "full", 1));
  const Results b = parse_results(text_of(run, case_json("k", "full", 1)), "b.jsonl");
  const CompareReport report = compare(a, b, {});
  EXPECT_THAT(report.warnings, Contains(HasSubstr("device differs: Made-up CPU and Another CPU")));
  EXPECT_THAT(report.warnings,
              Contains(HasSubstr("the f32 ceiling differs: 100 GFLOP/s and 80.0 GFLOP/s (-20 %)")));
}

TEST(Compare, BelowCountsOnlyWhatLiesWhollyBelow) {
  const Results a = results(sampled("full", 1.0, 0.01, 60, 1), sampled("causal", 1.0, 0.01, 60, 2));
  const Results b = results(sampled("full", 1.2, 0.01, 60, 3), sampled("causal", 1.05, 0.01, 60, 4));
  const CompareReport report = compare(a, b, {});
  EXPECT_THAT(report.below(0.9), SizeIs(1));
  EXPECT_THAT(report.below(0.97), SizeIs(2));
  EXPECT_THAT(report.below(0.5), IsEmpty());
}

TEST(Compare, Json) {
  const Results a = results(sampled("full", 1.0, 0.01, 60, 1)),
                b = results(sampled("full", 0.5, 0.01, 60, 3));
  const auto json = nlohmann::json::parse(comparison_json(compare(a, b, {}), {}));
  EXPECT_EQ(json["cases"][0]["verdict"], "faster");
  EXPECT_NEAR(json["cases"][0]["ratio"].get<double>(), 2, 0.05);
  EXPECT_EQ(json["counts"]["faster"], 1);
}

TEST(Compare, RefusesOptionsThatMeanNothing) {
  EXPECT_THROW(compare({}, {}, {.tolerance = -1}), Error);
  EXPECT_THROW(compare({}, {}, {.confidence = 1}), Error);
  EXPECT_THROW(compare({}, {}, {.replicates = 1}), Error);
}

}  // namespace
}  // namespace longspan::report
