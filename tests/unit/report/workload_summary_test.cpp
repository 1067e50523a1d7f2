// The steps of workloads, summed up from made-up records.
#include "report/workload_summary.h"

#include <sstream>

#include <gmock/gmock.h>

#include "lines.h"
#include "report/format.h"
#include "report/page.h"
#include "report/table.h"

namespace longspan::report {
namespace {

using test::case_json, test::run_json, test::text_of, test::unmeasured_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Steps = std::vector<std::vector<std::vector<std::string>>>;

nlohmann::json workload_json(const Steps& steps, int layers = 4) {
  return {{"type", "workload"},    {"schema", 1},  {"run", "00000000000000aa"},
          {"workload", "w.jsonl"}, {"hash", "aa"}, {"layers", layers},
          {"steps", steps}};
}

// A case of one pass on two ranks.
nlohmann::json pass_json(const std::string& id, const std::string& direction, double time_s, double plan_s) {
  nlohmann::json line = case_json("k", "causal_document", time_s);
  line["id"] = id;
  line["case"]["direction"] = direction;
  line["case"]["strategy"] = "usp";
  line["case"]["ranks"] = 2;
  line["plan_s"] = plan_s;
  line["parallel"] = {{"ranks", 2},
                      {"area", {100, 300}},
                      {"rank_time_s", {time_s, time_s}},
                      {"compute_s", {0.5 * time_s, 0.9 * time_s}},
                      {"exposed_s", {0.5 * time_s, 0.1 * time_s}},
                      {"plan", {{"owned", {{{0, 100}}, {{100, 150}, {150, 200}}}}}}};
  return line;
}

TEST(Percentiles, AreNearestRanks) {
  std::vector<double> values;
  for (int i = 200; i > 0; --i) values.push_back(i);
  const Percentiles of = percentiles(values);
  EXPECT_EQ(of.p50, 100);
  EXPECT_EQ(of.p95, 190);
  EXPECT_EQ(of.p99, 198);
  EXPECT_EQ(percentiles({7}).p99, 7);
  EXPECT_EQ(percentiles({7, 9}).p50, 7);
}

TEST(WorkloadSummary, AddsUpBothPassesOfTheSlowestReplica) {
  const Steps steps = {{{"f1", "b1", "f1", "b1"}, {"f2", "b2"}}, {{"f1", "b1"}, {"f2", "b2"}}};
  const std::string text = text_of(run_json(), workload_json(steps), pass_json("f1", "forward", 1, 0.1),
                                   pass_json("b1", "backward", 2, 0.4), pass_json("f2", "forward", 3, 0.1),
                                   pass_json("b2", "backward", 4, 0.6));
  const auto summaries = summarise_workloads(parse_results(text, "x.jsonl"));
  ASSERT_EQ(summaries.size(), 1u);
  const WorkloadSummary& s = summaries[0];
  EXPECT_EQ(s.contender, "usp, 2 ranks, k f32");
  EXPECT_EQ(s.measured, 2u);
  EXPECT_EQ(s.attention_s->p50, 7);  // replica 1; replica 0 takes 6 and 3
  EXPECT_EQ(s.attention_s->p99, 7);
  EXPECT_EQ(s.planning_s->p50, 0.6);  // a backward case plans both passes; step 0 takes 0.8
  EXPECT_EQ(s.planning_s->p99, 0.8);
  EXPECT_DOUBLE_EQ(s.with_planning_s->p50, 7 + 0.6 / 4);
  EXPECT_DOUBLE_EQ(*s.tokens_imbalance, 1);
  EXPECT_DOUBLE_EQ(*s.pairs_imbalance, 1.5);
  EXPECT_DOUBLE_EQ(*s.time_imbalance, 0.9 / 0.7);
  EXPECT_DOUBLE_EQ(*s.error, 0.1);
}

TEST(WorkloadSummary, CountsOnlyStepsWhoseCasesWereAllMeasured) {
  nlohmann::json failed = unmeasured_json("k", "causal_document", "failed", "out of memory");
  failed["id"] = "f2";
  const std::string text = text_of(run_json(), workload_json({{{"f1"}}, {{"f1", "f2"}}, {{"f1", "gone"}}}),
                                   pass_json("f1", "forward", 1, 0.1), failed);
  const auto summaries = summarise_workloads(parse_results(text, "x.jsonl"));
  ASSERT_EQ(summaries.size(), 1u);
  EXPECT_EQ(summaries[0].steps, 3u);
  EXPECT_EQ(summaries[0].measured, 1u);
  EXPECT_EQ(summaries[0].reason, "failed: out of memory");
  EXPECT_EQ(summaries[0].attention_s->p50, 1);
  EXPECT_EQ(summaries[0].planning_s->p50, 0.1);  // there is no backward case
}

TEST(WorkloadSummary, AStepWithoutCasesDoesNotCount) {
  const std::string text =
      text_of(run_json(), workload_json({{{"f1"}}, {{}, {}}, {{"f1"}}}), pass_json("f1", "forward", 1, 0.1));
  const auto summaries = summarise_workloads(parse_results(text, "x.jsonl"));
  ASSERT_EQ(summaries.size(), 1u);
  EXPECT_EQ(summaries[0].measured, 2u);
  EXPECT_EQ(summaries[0].reason, "a step has no case");
  EXPECT_EQ(summaries[0].attention_s->p50, 1);
}

TEST(WorkloadSummary, HasNoImbalanceWhereAStepHasNoLoads) {
  nlohmann::json alone = pass_json("f2", "forward", 1, 0.1);
  alone.erase("parallel");
  const std::string text =
      text_of(run_json(), workload_json({{{"f1"}}, {{"f2"}}}), pass_json("f1", "forward", 1, 0.1), alone);
  const auto summaries = summarise_workloads(parse_results(text, "x.jsonl"));
  ASSERT_EQ(summaries.size(), 1u);
  EXPECT_EQ(summaries[0].measured, 2u);
  EXPECT_FALSE(summaries[0].pairs_imbalance.has_value());
}

TEST(WorkloadSummary, TellsDtypesAndFilesOfOneNameApart) {
  nlohmann::json other = pass_json("f2", "forward", 1, 0.1);
  other["case"]["dtype"] = "f16";
  nlohmann::json rewritten = workload_json({{{"f2"}}});
  rewritten["hash"] = "bb";
  const std::string text =
      text_of(run_json(), workload_json({{{"f1"}}}), rewritten, pass_json("f1", "forward", 1, 0.1), other);
  const Results results = parse_results(text, "x.jsonl");
  const auto summaries = summarise_workloads(results);
  ASSERT_EQ(summaries.size(), 2u);
  EXPECT_NE(summaries[0].contender, summaries[1].contender);
  const std::string table = format_table(results, {});
  EXPECT_THAT(table, HasSubstr("hash aa"));
  EXPECT_THAT(table, HasSubstr("hash bb"));
}

TEST(WorkloadSummary, OneOfAResumedRunAndTheFastestFirst) {
  nlohmann::json other = pass_json("o1", "forward", 0.5, 0.1);
  other["case"]["strategy"] = "balanced";
  const std::string text = text_of(run_json(), workload_json({{{"f1"}}}), workload_json({{{"o1"}}}),
                                   pass_json("f1", "forward", 1, 0.1), run_json(), workload_json({{{"f1"}}}),
                                   workload_json({{{"o1"}}}), other);
  std::vector<std::string> contenders;
  for (const WorkloadSummary& s : summarise_workloads(parse_results(text, "x.jsonl")))
    contenders.push_back(s.contender);
  EXPECT_THAT(contenders, ElementsAre("balanced, 2 ranks, k f32", "usp, 2 ranks, k f32"));
}

TEST(WorkloadSummary, StandsInTableAndPageInPlaceOfItsCases) {
  const std::string text = text_of(run_json(), workload_json({{{"f1"}}}), pass_json("f1", "forward", 1, 0.1),
                                   case_json("lone", "full", 1));
  const Results results = parse_results(text, "x.jsonl");
  const std::string table = format_table(results, {});
  EXPECT_THAT(table, HasSubstr("1 measured, 0 skipped, 0 failed"));
  EXPECT_THAT(table, HasSubstr("1 case of workloads"));
  EXPECT_THAT(table, HasSubstr("Workload w.jsonl: 1 step, 4 layers"));
  EXPECT_THAT(table, HasSubstr("usp, 2 ranks, k f32"));
  EXPECT_THAT(table, Not(HasSubstr("Time of the ranks")));
  const std::string narrow = format_table(results, {.width = 80});
  EXPECT_THAT(narrow, HasSubstr("planning"));
  std::istringstream lines(narrow);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  const std::string page = format_page(results, {});
  EXPECT_THAT(page, HasSubstr(R"("contender":"usp, 2 ranks, k f32")"));
  EXPECT_THAT(page, Not(HasSubstr(R"("id":"f1")")));
}

TEST(CaseTitle, TellsMicroBatchesApart) {
  Workload workload;
  workload.kernel = "k";
  workload.mask = "causal_document";
  workload.lengths = "list:5:3";
  EXPECT_THAT(case_title(workload), HasSubstr(" list:5:3"));
  workload.lengths = "list:1000:1000:1000:1000:1000:1000:1000";
  EXPECT_THAT(case_title(workload), HasSubstr(" list:1000:1000:1000:1000:1000..."));
  workload.lengths = "pile";
  EXPECT_THAT(case_title(workload), Not(HasSubstr("pile")));
}

}  // namespace
}  // namespace longspan::report
