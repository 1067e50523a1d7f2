// The reader: what it accepts, what it tolerates, and that bad input causes input errors only.
#include "report/results.h"

#include <fstream>
#include <random>

#include <gmock/gmock.h>

#include "base/error.h"
#include "lines.h"
#include "report/table.h"

namespace longspan::report {
namespace {

using test::case_json, test::run_json, test::text_of, test::unmeasured_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(std::string_view text) {
  try {
    parse_results(text, "r.jsonl");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(Results, ReadsARunAndItsCases) {
  const Results r =
      parse_results(text_of(run_json(), case_json("cpu-flash", "causal", 0.5)), "out/quick/results.jsonl");
  ASSERT_EQ(r.runs.size(), 1u);
  EXPECT_EQ(r.runs[0].device_name(), "Made-up CPU");
  EXPECT_EQ(fact_text(r.runs[0].software.facts(), "libraries.fmt"), "9.1.0");
  EXPECT_EQ(record::find_fact(r.runs[0].device.facts(), "driver"), nullptr) << "null is absent";
  ASSERT_NE(r.runs[0].ceiling("f32"), nullptr);
  EXPECT_DOUBLE_EQ(r.runs[0].ceiling("f32")->flops_per_s, 1e11);
  EXPECT_EQ(r.runs[0].ceiling("bf16"), nullptr);
  ASSERT_EQ(r.setups.size(), 1u);
  EXPECT_EQ(r.setups[0].label, "quick");
  ASSERT_EQ(r.cases.size(), 1u);
  EXPECT_EQ(r.cases[0].workload.seqlen, 4096);
  EXPECT_DOUBLE_EQ(*r.cases[0].time_s, 0.5);
  EXPECT_DOUBLE_EQ(r.cases[0].interval_s->hi, 0.51);
  ASSERT_TRUE(r.cases[0].accuracy->worst());
  EXPECT_EQ(r.cases[0].accuracy->worst()->tensor, "o");
  EXPECT_FALSE(r.cases[0].plan_s.has_value());
  EXPECT_THAT(r.warnings, IsEmpty());
}

TEST(Results, KeepsAxesItDoesNotKnowAndIgnoresOtherKeys) {
  auto line = case_json("sm90", "causal", 0.5);
  line["case"]["strategy"] = "ring";
  line["case"]["ranks"] = 8;
  line["case"]["options"] = {{"window", {256, 0}}, {"density", 0.05}};
  line["news"] = {{"deep", {1, 2, 3}}};
  const Results r = parse_results(text_of(run_json(), line), "r.jsonl");
  EXPECT_EQ(fact_text(r.cases[0].workload.extra, "strategy"), "ring");
  EXPECT_EQ(record::fact_number(r.cases[0].workload.extra, "ranks"), 8);
  EXPECT_EQ(fact_text(r.cases[0].workload.option_facts, "window"), "256,0");
  EXPECT_EQ(fact_text(r.cases[0].workload.option_facts, "density"), "0.05");
}

TEST(Results, NameDefaultsWhereACaseOfTheStrategyHasAValue) {
  auto with = case_json("sm90", "causal", 0.5), without = with, other = with, alone = with;
  with["case"].update({{"strategy", "ring"}, {"ranks", 8}, {"skew", 3}});
  without["case"].update({{"strategy", "ring"}, {"ranks", 8}});
  other["case"].update({{"strategy", "usp"}, {"ranks", 8}});
  int number = 0;
  for (auto* line : {&with, &without, &other, &alone}) (*line)["id"] = std::to_string(number++);
  const Results r = parse_results(text_of(run_json(), with, without, other, alone), "r.jsonl");
  std::vector<std::string> skews;
  for (const CaseRecord& c : r.cases) skews.push_back(fact_text(c.workload.extra, "skew"));
  EXPECT_THAT(skews, ElementsAre("3", "default", "", ""));
  const std::string table = format_table(r, {});
  EXPECT_THAT(table, testing::ContainsRegex("default +ring"));
  EXPECT_THAT(table, testing::ContainsRegex(" 3 +ring"));
}

TEST(Results, KnowWhereTheSameBitsWereDemanded) {
  auto line = case_json("sm90", "causal", 0.5);
  EXPECT_FALSE(parse_results(text_of(run_json(), line), "r.jsonl").cases[0].workload.deterministic);
  line["case"]["deterministic"] = true;
  line["accuracy"]["same_bits"] = true;
  const Results r = parse_results(text_of(run_json(), line), "r.jsonl");
  EXPECT_TRUE(r.cases[0].workload.deterministic);
  EXPECT_EQ(r.cases[0].accuracy->same_bits, true);
  EXPECT_THAT(r.cases[0].workload.extra, IsEmpty());
  line["case"]["deterministic"] = "yes";
  EXPECT_THROW(parse_results(text_of(run_json(), line), "r.jsonl"), Error);
}

TEST(Results, IgnoresTypesOfLaterVersions) {
  const nlohmann::json line = {{"type", "comment"}, {"schema", 1}};
  EXPECT_THAT(parse_results(text_of(run_json(), line), "r.jsonl").cases, IsEmpty());
}

TEST(Results, LeavesOutPredictionsWithAWarning) {
  nlohmann::json line = case_json("sm90", "causal", 0.5);
  line["type"] = "simulated";
  line["machine"] = {{"name", "elsewhere"}, {"measured", false}};
  const Results r = parse_results(text_of(run_json(), case_json("sm90", "full", 0.5), line), "r.jsonl");
  ASSERT_EQ(r.cases.size(), 1u);
  EXPECT_EQ(r.cases[0].workload.mask, "full");
  EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("r.jsonl: 1 simulated case is left out")));
  ASSERT_EQ(r.simulated.size(), 1u);
  EXPECT_EQ(r.simulated[0].workload.mask, "causal");
  EXPECT_EQ(r.simulated[0].machine.name, "elsewhere");
  line["machine"].erase("name");
  EXPECT_THROW(parse_results(text_of(run_json(), line), "r.jsonl"), Error);
}

TEST(Results, LeavesOutAHalfLastLineWithAWarning) {
  const std::string whole = text_of(run_json(), case_json("a", "causal", 1), case_json("b", "causal", 1));
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t end = last + 1; end < whole.size() - 1; ++end) {
    const Results r = parse_results(whole.substr(0, end), "r.jsonl");
    ASSERT_EQ(r.cases.size(), 1u) << "cut to " << end << " bytes";
    ASSERT_THAT(r.warnings, ElementsAre(HasSubstr("r.jsonl:3: the last line is incomplete")));
  }
  EXPECT_EQ(parse_results(whole.substr(0, whole.size() - 1), "r.jsonl").cases.size(), 2u)
      << "only the newline is missing: the line is complete";
}

// Lines are read in portions of 1024, by several threads.
TEST(Results, OfManyLinesTheFirstWrongOneIsNamed) {
  const std::string run = text_of(run_json());
  std::string text = run;
  for (int i = 2; i <= 3000; ++i) text += i == 2500 || i == 2700 ? "wrong\n" : i % 7 == 0 ? "\n" : run;
  EXPECT_THAT(error_of(text), HasSubstr("r.jsonl:2500: not valid JSON"));
}

TEST(Results, AnIncompleteLastLineMayEndAnyPortion) {
  const std::string run = text_of(run_json());
  for (const int whole : {1022, 1023, 1024, 1025}) {
    std::string text;
    for (int i = 0; i < whole; ++i) text += run;
    const Results r = parse_results(text + "{\"type\"", "r.jsonl");
    EXPECT_THAT(r.warnings,
                ElementsAre(HasSubstr(fmt::format("r.jsonl:{}: the last line is incomplete", whole + 1))));
    EXPECT_THAT(error_of(text + "{\"type\"\n"),
                HasSubstr(fmt::format("r.jsonl:{}: not valid JSON", whole + 1)));
    EXPECT_THAT(parse_results(text + run.substr(0, run.size() - 1), "r.jsonl").warnings, IsEmpty());
  }
}

TEST(Results, NamesTheLineOfAnythingMalformed) {
  const std::string run = text_of(run_json());
  EXPECT_THAT(error_of(run + "{\"type\": \n" + run), HasSubstr("r.jsonl:2: not valid JSON"));
  EXPECT_THAT(error_of(run + "[1, 2]\n"), HasSubstr("r.jsonl:2: a JSON array, not an object"));
  EXPECT_THAT(error_of("\n\n{\"a\": 1}\n"), HasSubstr("r.jsonl:3: 'schema' is missing"));
  EXPECT_THAT(error_of("{\"schema\": 1}\n"), HasSubstr("'type' is missing"));
  EXPECT_THAT(error_of("{\"schema\": 1, \"type\": \"case\", \"s\": \"\xff\"}\n"),
              HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"schema\": 1, \"type\": \"case\", \"time_s\": 1e999}\n"),
              HasSubstr("not valid JSON"));
}

TEST(Results, RefusesAnUnknownSchemaByName) {
  auto line = run_json();
  line["schema"] = 7;
  EXPECT_THAT(error_of(text_of(line)),
              HasSubstr("r.jsonl:1: schema 7 is unknown; this longspan reads schema 1"));
  line["schema"] = "one";
  EXPECT_THAT(error_of(text_of(line)), HasSubstr("schema one is unknown"));
}

TEST(Results, NamesTheKeyOfAWrongValue) {
  const auto error_with = [](const char* key, nlohmann::json value) {
    auto line = case_json("a", "causal", 1);
    line[key] = std::move(value);
    return error_of(text_of(run_json(), line));
  };
  EXPECT_THAT(error_with("time_s", "fast"), HasSubstr("r.jsonl:2: 'time_s' is a JSON string, not a number"));
  EXPECT_THAT(error_with("time_s", 0), HasSubstr("'time_s' is 0; it must be above 0"));
  EXPECT_THAT(error_with("time_s", nullptr), HasSubstr("status is ok but 'time_s' is missing"));
  EXPECT_THAT(error_with("interval_s", {2, 1}), HasSubstr("'interval_s' must be [lo, hi] with lo <= hi"));
  EXPECT_THAT(error_with("interval_s", {1, 2, 3}), HasSubstr("'interval_s' must be [lo, hi]"));
  EXPECT_THAT(error_with("flops_per_s", -1), HasSubstr("'flops_per_s' is -1; it cannot be below 0"));
  EXPECT_THAT(error_with("status", "fine"),
              HasSubstr("status 'fine' is unknown; it is one of ok, skipped, failed"));
  EXPECT_THAT(error_with("case", nullptr), HasSubstr("'case' is missing"));
  EXPECT_THAT(error_with("id", nullptr), HasSubstr("'id' is missing or empty"));
  EXPECT_THAT(error_with("run", nullptr), HasSubstr("'run' is missing or empty"));
  EXPECT_THAT(error_with("measurements", {{{"samples_s", {0.1, -0.1}}}}), HasSubstr("'samples_s' is -0.1"));
  EXPECT_THAT(error_with("picture", {{"size", 2}, {"data", "AAA="}}), HasSubstr("4 bytes in base64"));
  EXPECT_THAT(error_with("picture", {{"size", 1e12}, {"data", ""}}), HasSubstr("it must be 1 to 1024"));
  EXPECT_THAT(error_with("picture", {{"size", 1}, {"data", "A?=="}}), HasSubstr("1 bytes in base64"));
  EXPECT_EQ(error_with("peak_bytes", nullptr), "no error");
}

TEST(Results, DecodesPictures) {
  auto line = case_json("a", "causal", 1);
  line["picture"] = {{"size", 2}, {"data", "/wCA/w=="}};
  const Results r = parse_results(text_of(run_json(), line), "r.jsonl");
  ASSERT_TRUE(r.pictures.size() == 1);
  EXPECT_EQ(r.pictures[0].picture.size, 2);
  EXPECT_THAT(r.pictures[0].picture.cells, ElementsAre(255, 0, 128, 255));
}

TEST(Results, OfACaseRecordedTwiceTheLastCounts) {
  const std::string text = text_of(run_json(), case_json("a", "causal", 1), case_json("b", "causal", 1),
                                   case_json("a", "causal", 2));
  const Results r = parse_results(text, "r.jsonl");
  ASSERT_EQ(r.cases.size(), 2u);
  EXPECT_DOUBLE_EQ(*r.cases[1].time_s, 2);
  EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("1 case was recorded more than once")));
}

TEST(Results, ARetriedFailureIsShownOnceWithoutAWarning) {
  auto other = run_json("00000000000000bb");
  other["software"]["commit"] = "another";
  for (const nlohmann::json& second : {run_json("00000000000000bb"), other}) {
    const Results r = parse_results(
        text_of(run_json(), unmeasured_json("a", "causal", "failed", "hung"), case_json("b", "full", 1),
                second, case_json("a", "causal", 2, "00000000000000bb")),
        "r.jsonl");
    ASSERT_EQ(r.cases.size(), 2u);
    EXPECT_DOUBLE_EQ(*r.cases[1].time_s, 2);
    EXPECT_THAT(r.warnings, IsEmpty());
  }
}

TEST(Results, AResumedRunIsOneSetupAndAnotherDeviceIsAnother) {
  auto other = run_json("00000000000000cc");
  other["device"]["name"] = "Made-up GPU";
  const Results r =
      parse_results(text_of(run_json(), case_json("a", "causal", 1), run_json("00000000000000bb"),
                            case_json("b", "causal", 1, "00000000000000bb"), other,
                            case_json("a", "causal", 1, "00000000000000cc")),
                    "out/results.jsonl");
  ASSERT_EQ(r.setups.size(), 2u);
  EXPECT_THAT(r.setups[0].runs, ElementsAre(0, 1));
  EXPECT_EQ(r.setups[0].label, "out");
  EXPECT_EQ(r.setups[1].label, "out (2)");
  EXPECT_EQ(r.cases.size(), 3u) << "the same case on two devices is two results";
}

TEST(Results, ACaseOfAnUnannouncedRunIsKeptWithAWarning) {
  const Results r = parse_results(text_of(case_json("a", "causal", 1)), "r.jsonl");
  EXPECT_EQ(r.cases.size(), 1u);
  EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("has no run line")));
}

TEST(Results, AnEmptyFileHasNoResults) {
  EXPECT_THAT(parse_results("", "r.jsonl").cases, IsEmpty());
  EXPECT_THAT(parse_results("\n \n", "r.jsonl").cases, IsEmpty());
}

// A small fuzzer; the real one runs separately. Changes each byte of a valid file in turn.
TEST(Results, AnyBytesGiveResultsOrAnInputError) {
  auto line = case_json("a", "causal", 1);
  line["picture"] = {{"size", 1}, {"data", "/w=="}};
  const std::string good = text_of(run_json(), line, unmeasured_json("b", "full", "failed", "hung"));
  std::mt19937 generator(1);
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char byte : {'\0', '"', '{', '9', '-', '\n', static_cast<char>(generator())}) {
      std::string bad = good;
      bad[i] = byte;
      try {
        parse_results(bad, "r.jsonl");
      } catch (const Error& error) {
        ASSERT_EQ(error.kind(), ErrorKind::kInput);
        ASSERT_THAT(error.what(), HasSubstr("r.jsonl:"));
      }
    }
  }
}

TEST(Results, SurvivesDepthAndLength) {
  const std::string deep = std::string(200000, '[') + "\n";
  EXPECT_THAT(error_of(deep), HasSubstr("nested more than 64 deep"));
  const auto error_of_depth = [](size_t depth) {
    const std::string nested = std::string(depth, '[') + std::string(depth, ']');
    return error_of("{\"schema\":1,\"type\":\"run\",\"run\":\"x\",\"machine\":{\"a\":" + nested + "}}\n");
  };
  EXPECT_THAT(error_of_depth(200000), HasSubstr("nested more than 64 deep"));
  EXPECT_EQ(error_of_depth(60), "no error");
  auto line = case_json("a", "causal", 1);
  line["measurements"][0]["samples_s"] = std::vector<double>(300000, 0.25);
  const Results r = parse_results(text_of(run_json(), line), "r.jsonl");
  EXPECT_EQ(r.cases[0].measurements[0].samples_s.size(), 300000u);
}

class ResultsOnDisk : public ::testing::Test {
 protected:
  ResultsOnDisk() { std::filesystem::create_directories(folder_ / "a" / "b"); }
  ~ResultsOnDisk() override { std::filesystem::remove_all(folder_); }
  void write(const std::filesystem::path& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("longspan-results-" + std::to_string(std::random_device{}()));
};

TEST_F(ResultsOnDisk, ReadsFoldersAndEachFileOnce) {
  write("a/results.jsonl", text_of(run_json("1"), case_json("a", "causal", 1, "1")));
  write("a/b/results.jsonl", text_of(run_json("2"), case_json("a", "causal", 1, "2")));
  const Results r = read_results({folder_, folder_ / "a", folder_ / "a" / "results.jsonl"});
  EXPECT_EQ(r.cases.size(), 2u);
  ASSERT_EQ(r.setups.size(), 2u);
  EXPECT_EQ(r.setups[0].label, "b");
  EXPECT_EQ(r.setups[1].label, "a");
  EXPECT_THAT(r.warnings, IsEmpty());
}

TEST_F(ResultsOnDisk, SaysWhatIsMissing) {
  EXPECT_THROW(read_results({}), Error);
  EXPECT_THAT([&] { read_results({folder_ / "none"}); },
              ::testing::ThrowsMessage<Error>(HasSubstr("none: no such file or folder")));
  EXPECT_THAT([&] { read_results({folder_ / "a"}); },
              ::testing::ThrowsMessage<Error>(HasSubstr("no results.jsonl in this folder")));
}

std::string parallel_line(const std::string& parallel) {
  return R"({"type":"case","schema":1,"run":"r","id":"1","status":"ok","time_s":1,)"
         R"("case":{"kernel":"k","mask":"full","strategy":"usp","ranks":2},"parallel":)" +
         parallel + "}\n";
}

TEST(ParallelRecords, AreReadAndSummed) {
  const Results results = parse_results(
      parallel_line(R"({"ranks":2,"imbalance":1.5,"rank_time_s":[2,2],"compute_s":[1,2],"exposed_s":[1,0],)"
                    R"("plan":{"owned":[[[0,4]],[[4,6],[7,8]]],)"
                    R"("by_round":[{"area":[1,2],"sent_bytes":[3,4],"moves":[["kv",0,1,64]]}]}})"),
      "x");
  ASSERT_EQ(results.cases.size(), 1u);
  ASSERT_TRUE(results.cases[0].parallel);
  const record::ParallelRecord& p = *results.cases[0].parallel;
  EXPECT_EQ(p.ranks, 2);
  EXPECT_DOUBLE_EQ(*p.share(p.compute_s), 0.75);
  EXPECT_DOUBLE_EQ(*p.share(p.exposed_s), 0.25);
  EXPECT_FALSE(p.share(p.merge_s));
  EXPECT_EQ(p.plan.owned[1].size(), 2u);
  ASSERT_EQ(p.plan.by_round.size(), 1u);
  EXPECT_EQ(p.plan.by_round[0].moves->front().to, 1);
  EXPECT_THAT(format_table(results, {}), HasSubstr("Time of the ranks"));
}

TEST(ParallelRecords, AreRefusedWhereTheyAreMalformed) {
  for (const char* wrong :
       {"[]", "{}", R"({"ranks":0})", R"({"ranks":1e9})", R"({"ranks":2,"compute_s":[1]})",
        R"({"ranks":2,"compute_s":[1,-1]})", R"({"ranks":2,"difference":[]})", R"({"ranks":2,"plan":[]})",
        R"({"ranks":2,"plan":{"owned":[[]]}})", R"({"ranks":1,"plan":{"owned":[[[1]]]}})",
        R"({"ranks":1,"plan":{"by_round":[{"moves":[["kv",0,1,2]]}]}})",
        R"({"ranks":1,"plan":{"by_round":[{"area":[1,2]}]}})", R"({"ranks":1,"plan":{"by_round":[3]}})"}) {
    EXPECT_THROW(parse_results(parallel_line(wrong) + "\n", "x"), Error) << wrong;
  }
}

}  // namespace
}  // namespace longspan::report
