// What a paper expects, evaluated on made-up records: every verdict, and the built-in experiments.
#include "report/experiment.h"

#include <set>

#include <gmock/gmock.h>

#include "base/error.h"
#include "bench/spec/suite.h"
#include "lines.h"
#include "record/record_json.h"

namespace longspan::report {
namespace {

using test::case_json, test::run_json, test::text_of, test::unmeasured_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// fa3 is at least 1.2 times as fast as the best of two others, at 4K and 8K.
constexpr const char* kFaster = R"(
title = "Made up"
paper = "a paper"
[[claim]]
text = "fa3 is faster"
source = "section 1"
otherwise = "the others are newer"
over = "seqlen"
where = { mask = "full", seqlen = ["4K", "8K"] }
a = { kernel = "fa3" }
b = { kernel = ["slow", "slower"] }
compare = "rate"
at_least = 1.2
)";

constexpr const char* kOutcome = R"(
title = "Made up"
paper = "a paper"
[[claim]]
text = "naive attention ends"
source = "section 1"
otherwise = "this GPU is larger"
over = "seqlen"
where = { mask = "full", seqlen = "4K" }
a = { kernel = "naive" }
outcome = ")";

nlohmann::json at_8k(nlohmann::json line) {
  line["id"] = line["id"].get<std::string>() + "-8K";
  line["case"]["seqlen"] = 8192;
  return line;
}

// The results must outlive what points into them.
struct Evaluated {
  Experiment experiment;
  Results results;
  std::vector<ClaimResult> claims;

  template <class... Lines>
  explicit Evaluated(const std::string& text, const Lines&... lines)
      : experiment(parse_experiment(text, "test.toml")),
        results(parse_results(text_of(run_json(), lines...), "r.jsonl")),
        claims(evaluate(experiment, results)) {}

  Agreement verdict() const { return claims.at(0).agreement; }
  std::string text() const { return format_experiment(experiment, claims, {}); }
};

TEST(Experiment, AgreesWhereEveryRatioIsWithinItsBounds) {
  const Evaluated e(kFaster, case_json("fa3", "full", 1), case_json("slow", "full", 2),
                    at_8k(case_json("fa3", "full", 1)), at_8k(case_json("slower", "full", 1.3)));
  EXPECT_EQ(e.verdict(), Agreement::kAgrees);
  EXPECT_THAT(e.text(), HasSubstr("agrees: fa3 is faster\n"));
  EXPECT_THAT(e.text(), HasSubstr("seqlen 4K agrees fa3: 5.00 GFLOP/s; slow: 2.50 GFLOP/s; ratio 2.00"));
  EXPECT_THAT(e.text(), Not(HasSubstr("the others are newer"))) << "a reason stands beside what differs";
}

TEST(Experiment, TheBestOfASideCounts) {
  const Evaluated e(kFaster, case_json("fa3", "full", 1), case_json("slow", "full", 1.1),
                    case_json("slower", "full", 5));
  EXPECT_EQ(e.verdict(), Agreement::kDiffers);
  EXPECT_NEAR(e.claims[0].findings[0].ratio, 1.1, 1e-9);
  EXPECT_THAT(e.text(), HasSubstr("does not agree: fa3 is faster\n"));
  EXPECT_THAT(e.text(), HasSubstr("why: the others are newer\n"));
}

TEST(Experiment, AgreesInPartWhereOneValueDiffers) {
  const Evaluated e(kFaster, case_json("fa3", "full", 1), case_json("slow", "full", 2),
                    at_8k(case_json("fa3", "full", 1)), at_8k(case_json("slow", "full", 1)));
  EXPECT_EQ(e.verdict(), Agreement::kInPart);
  EXPECT_THAT(e.text(), HasSubstr("why: the others are newer\n"));
}

TEST(Experiment, IsNotMeasuredWithoutBothSides) {
  const Evaluated nothing(kFaster, case_json("fa3", "causal", 1), case_json("slow", "causal", 2));
  EXPECT_EQ(nothing.verdict(), Agreement::kNotMeasured);
  EXPECT_THAT(nothing.text(), HasSubstr("not measured no result of fa3; no result of slow, slower"));
  const Evaluated skipped(kFaster, unmeasured_json("fa3", "full", "skipped", "needs a CUDA device"),
                          case_json("slow", "full", 2));
  EXPECT_EQ(skipped.verdict(), Agreement::kNotMeasured);
  EXPECT_THAT(skipped.text(), HasSubstr("not measured fa3 skipped: needs a CUDA device"));
  EXPECT_THAT(skipped.text(), Not(HasSubstr("the others are newer")));
}

TEST(Experiment, OtherWorkIsNotCompared) {
  auto other = case_json("slow", "full", 2);
  other["case"]["head_dim"] = 64;
  EXPECT_EQ(Evaluated(kFaster, case_json("fa3", "full", 1), other).verdict(), Agreement::kNotMeasured);
}

TEST(Experiment, ComparesSharesOfTheCeilingWhereAllHaveThem) {
  // On another GPU, whose ceiling is half as high, the same rate is twice the share.
  auto fa3 = case_json("fa3", "full", 1), slow = case_json("slow", "full", 1);
  fa3["share_of_ceiling"] = 0.8;
  slow["share_of_ceiling"] = 0.4;
  EXPECT_EQ(Evaluated(kFaster, fa3, slow).verdict(), Agreement::kAgrees);
  slow.erase("share_of_ceiling");
  EXPECT_EQ(Evaluated(kFaster, fa3, slow).verdict(), Agreement::kDiffers);
}

TEST(Experiment, AnUpperBoundOnMemory) {
  std::string text = kFaster;
  text.replace(text.find("\"rate\""), 6, "\"memory\"");
  text.replace(text.find("at_least = 1.2"), 14, "at_most = 0.5");
  auto fa3 = case_json("fa3", "full", 1), slow = case_json("slow", "full", 1);
  slow["peak_bytes"] = 12 << 20;
  const Evaluated less(text, fa3, slow);
  EXPECT_EQ(less.verdict(), Agreement::kAgrees);
  EXPECT_THAT(less.text(), HasSubstr("fa3: 3.00 MiB; slow: 12.0 MiB; ratio 0.250"));
  slow["peak_bytes"] = 4 << 20;
  EXPECT_EQ(Evaluated(text, fa3, slow).verdict(), Agreement::kDiffers);
}

TEST(Experiment, RunsOutOfMemory) {
  const std::string text = std::string(kOutcome) + "failed\"\nreason = \"out of memory\"\n";
  const auto ended = [&](const char* status, const char* reason) {
    return Evaluated(text, unmeasured_json("naive", "full", status, reason)).verdict();
  };
  EXPECT_EQ(ended("failed", "out of memory (needs 256 GiB, 132 GiB free)"), Agreement::kAgrees);
  EXPECT_EQ(ended("failed", "timed out"), Agreement::kNotMeasured);
  EXPECT_EQ(ended("skipped", "out of memory is not why"), Agreement::kNotMeasured);
  const Evaluated ran(text, case_json("naive", "full", 1));
  EXPECT_EQ(ran.verdict(), Agreement::kDiffers);
  EXPECT_THAT(ran.text(), HasSubstr("why: this GPU is larger\n"));
  EXPECT_EQ(Evaluated(text, case_json("fa3", "full", 1)).verdict(), Agreement::kNotMeasured);
}

TEST(Experiment, IsUnsupported) {
  const std::string text = std::string(kOutcome) + "skipped\"\nreason = \"no backward pass\"\n";
  const auto skipped = unmeasured_json("naive", "full", "skipped", "has no backward pass");
  EXPECT_EQ(Evaluated(text, skipped).verdict(), Agreement::kAgrees);
  EXPECT_THAT(Evaluated(text, skipped).text(), HasSubstr("naive skipped: has no backward pass"));
  EXPECT_EQ(Evaluated(text, case_json("naive", "full", 1)).verdict(), Agreement::kDiffers);
  EXPECT_EQ(Evaluated(text, unmeasured_json("naive", "full", "failed", "crashed")).verdict(),
            Agreement::kNotMeasured);
}

TEST(Experiment, AMissingKernelOrDeviceIsNoLackOfSupport) {
  const std::string text = std::string(kOutcome) + "skipped\"\nreason = \"no backward pass\"\n";
  for (const char* reason :
       {"needs a CUDA device: no NVIDIA driver was found", "not available: no module vsa",
        "kernel 'naive' is not in this build (no CUDA); configure it"}) {
    const Evaluated e(text, unmeasured_json("naive", "full", "skipped", reason));
    EXPECT_EQ(e.verdict(), Agreement::kNotMeasured) << reason;
  }
}

TEST(Experiment, ComparesStrategiesByRankWithTheirBestDegrees) {
  constexpr const char* kText = R"(
title = "Made up"
paper = "a paper"
[[claim]]
text = "hybrids win"
source = "section 1"
over = "ranks"
where = { tokens_per_rank = "1K", ranks = ["4", "8"] }
a = { strategy = "usp" }
b = { strategy = "ulysses" }
compare = "rate"
at_least = 1.02
)";
  const auto spread = [](const char* strategy, double time_s, int degree) {
    auto line = case_json("k", "full", time_s);
    line["id"] = strategy + std::to_string(degree);
    line["case"]["strategy"] = strategy;
    line["case"]["ranks"] = 4;
    if (degree > 0) line["case"]["ulysses"] = degree;
    return line;
  };
  const Evaluated e(kText, spread("usp", 2, 2), spread("usp", 1, 4), spread("ulysses", 1.5, 0));
  ASSERT_EQ(e.claims[0].findings.size(), 2u);
  EXPECT_NEAR(e.claims[0].findings[0].ratio, 1.5, 1e-9);
  EXPECT_EQ(e.claims[0].findings[1].agreement, Agreement::kNotMeasured);
  EXPECT_EQ(e.verdict(), Agreement::kAgrees) << "what was not measured is no vote";
  EXPECT_EQ(e.claims[0].measured(), "1 of 2");
}

TEST(Experiment, JsonHasTheReasonOnlyWhereItDiffers) {
  const Evaluated differs(kFaster, case_json("fa3", "full", 1), case_json("slow", "full", 1));
  const Evaluated agrees(kFaster, case_json("fa3", "full", 1), case_json("slow", "full", 2));
  const auto json = experiment_json(differs.experiment, differs.claims);
  EXPECT_EQ(json["claims"][0]["verdict"], "does not agree");
  EXPECT_EQ(json["claims"][0]["why"], "the others are newer");
  EXPECT_EQ(experiment_json(agrees.experiment, agrees.claims)["claims"][0]["why"], "");
}

std::string refusal(std::string text, std::string_view from, std::string_view to) {
  text.replace(text.find(from), from.size(), to);
  try {
    parse_experiment(text, "test.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

TEST(Experiment, NamesWhatIsWrongInAFile) {
  EXPECT_THAT(refusal(kFaster, "otherwise", "otherwhise"),
              HasSubstr("has no key 'otherwhise' (did you mean"));
  EXPECT_THAT(refusal(kFaster, "title = \"Made up\"", ""), HasSubstr("lacks 'title'"));
  EXPECT_THAT(refusal(kFaster, "\"rate\"", "\"speed\""), HasSubstr("must be rate or memory"));
  EXPECT_THAT(refusal(kFaster, "at_least = 1.2", ""), HasSubstr("needs a side 'b' and at_least or at_most"));
  EXPECT_THAT(refusal(kFaster, "1.2", "-1"), HasSubstr("must be a number above 0"));
  EXPECT_THAT(refusal(kFaster, "over = \"seqlen\"", "over = \"ranks\""),
              HasSubstr("lacks the values of ranks"));
  EXPECT_THAT(refusal(kFaster, "[\"4K\", \"8K\"]", "[4096]"),
              HasSubstr("test.toml:9: 'seqlen' must be a string"));
  EXPECT_THAT(refusal(kFaster, "[[claim]]", "[[claim"), HasSubstr("test.toml:4:"));
  EXPECT_THAT(refusal(std::string(kOutcome) + "skipped\"\n", "skipped", "slow"),
              HasSubstr("must be failed or skipped"));
  EXPECT_THAT(refusal(std::string(kOutcome) + "skipped\"\n", "skipped", "skipped"),
              HasSubstr("a claim of an outcome has a 'reason'"));
}

// A field that is misspelt would never be measured, and nobody would see why.
class BuiltInExperiment : public testing::TestWithParam<const char*> {};

TEST_P(BuiltInExperiment, IsMeasuredByItsSuite) {
  const Experiment experiment = find_experiment(GetParam());
  std::vector<KernelRow> rows;
  for (const char* name :
       {"fa2", "fa3", "fa4", "cudnn-fe", "cudnn-flex", "flash-infer", "flashmask", "flashmask-v3", "flex",
        "sm90", "torch-cudnn", "torch-efficient", "torch-fa2", "torch-math", "vsa", "vsa-triton"})
    rows.emplace_back().name = name, rows.back().reason = "not in this build";
  std::vector<Workload> workloads;
  for (const bench::Case& c : bench::expand(bench::find_suite(std::string("paper-") + GetParam()),
                                            {"cpu-flash"}, {"cpu-flash"}, rows))
    workloads.push_back(record::workload_from(record::Json::parse(to_json(c).dump())));
  for (const Claim& claim : experiment.claims) {
    EXPECT_FALSE(claim.source.empty());
    for (const std::string& value : claim.where.at(claim.over)) {
      for (const Selection* side : {&claim.a, &claim.b}) {
        if (side->empty()) continue;
        const Selection here{{claim.over, {value}}};
        const auto measured = [&](const Workload& w) {
          return selects(here, w) && selects(claim.where, w) && selects(*side, w);
        };
        EXPECT_TRUE(std::any_of(workloads.begin(), workloads.end(), measured))
            << claim.text << ", " << claim.over << " " << value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BuiltInExperiment, testing::Values("1", "2", "3"),
                         [](const auto& param) { return std::string("Paper") + param.param; });

TEST(Experiment, ThereAreThree) {
  EXPECT_THAT([] { find_experiment("4"); },
              ::testing::ThrowsMessage<Error>(HasSubstr("--experiment '4': must be 1, 2 or 3")));
}

}  // namespace
}  // namespace longspan::report
