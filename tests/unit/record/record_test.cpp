// Writing and reading a record is lossless, for made-up records and for every row that the project published.
#include "record/record.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "record/json_reader.h"
#include "record/record_json.h"
#include "record/results_file.h"
#include "record/schema.h"

namespace longspan::record {
namespace {

using testing::HasSubstr;

CaseRecord whole_case() {
  CaseRecord c;
  c.run = "00000000000000aa";
  c.id = "00000000000000bb";
  c.workload = workload_from(Json::parse(
      R"({"kernel":"k","mask":"full","seed":18446744073709551615,"seqlen":64,"strategy":"usp","ranks":2})"));
  c.command = "longspan run --kernel k";
  c.started = "2026-01-02T03:04:05Z";
  c.elapsed_s = 1.5;
  c.status = Status::kOk;
  c.area = 272;
  c.time_s = 0.25;
  c.peak_bytes = int64_t{1} << 40;
  c.total_bytes = int64_t{1} << 41;
  c.accuracy.emplace();
  c.accuracy->max_error = {{"dq", 1e-7}, {"o", std::nan("")}};
  c.picture = Picture{2, {0, 1, 254, 255}};
  c.parallel.emplace();
  c.parallel->ranks = 2;
  for (auto* list : {&c.parallel->area, &c.parallel->sent_bytes, &c.parallel->predicted_bytes,
                     &c.parallel->between_nodes_bytes, &c.parallel->peak_copy_bytes, &c.parallel->held_bytes,
                     &c.parallel->planned_held_bytes, &c.parallel->rank_time_s, &c.parallel->compute_s,
                     &c.parallel->exposed_s, &c.parallel->reorder_s, &c.parallel->merge_s})
    *list = {1, 2};
  PassPlan& plan = c.parallel->plan;
  plan.sent_bytes = plan.between_nodes_bytes = plan.area = plan.peak_copy_bytes = {3, int64_t{1} << 50};
  plan.by_round = {{{1, 2}, {3, 4}, {5, 6}, std::vector<PlanMove>{{"kv", 0, 1, 64}}}};
  plan.owned = {{{0, 4}}, {{4, 6}, {7, 8}}};
  c.device_state = open_object(DeviceState{{1000, 1500, 1980}, 600, -3, {"power cap"}});
  Measurement m;
  m.area = (int64_t{1} << 60) + 1;
  m.params.json = {{"window_left", -1}, {"block", 64}};
  m.samples_s = {0.25, 0.5};
  c.measurements = {m};
  c.phases_s = {{"starting", 0.1}, {"timing", 0.2}, {"drawing", 0.3}};
  return c;
}

TEST(Record, ReadsWhatItWrote) {
  const Json json = to_json(whole_case());
  const CaseRecord again = case_from(parse_results_line(text_of(json)));
  EXPECT_EQ(text_of(to_json(again)), text_of(json));
  EXPECT_EQ(again.measurements[0].area, (int64_t{1} << 60) + 1);
  EXPECT_TRUE(std::isnan(again.accuracy->max_error.at("o"))) << "null";
  EXPECT_EQ(again.accuracy->errors().size(), 1u);
  EXPECT_EQ(fact_text(again.workload.extra, "strategy"), "usp");
  EXPECT_EQ(json["measurements"][0]["interval_s"], Json()) << "null below 6 samples";
  EXPECT_EQ(json["interval_s"], Json());
  EXPECT_FALSE(to_json(CaseRecord()).contains("interval_s")) << "but absent if nothing was measured";
}

TEST(Record, KeepsTheOrderOfItsFields) {
  const Json json = to_json(whole_case());
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::ElementsAre("type", "schema", "run", "id", "case", "command", "started",
                                         "elapsed_s", "status", "area", "time_s", "interval_s", "peak_bytes",
                                         "total_bytes", "accuracy", "parallel", "picture", "device_state",
                                         "measurements", "phases_s"));
}

TEST(Record, NamesWhereAWrongValueStands) {
  const auto error_with = [](const char* pointer, const Json& value) -> std::string {
    Json json = to_json(whole_case());
    json[Json::json_pointer(pointer)] = value;
    try {
      case_from(parse_results_line(text_of(json)));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_with("/case/seqlen", 1.5), "'case': 'seqlen' is 1.5; it must be a whole number up to 2^53");
  EXPECT_EQ(error_with("/peak_bytes", -1), "'peak_bytes' is -1; it cannot be below 0");
  EXPECT_EQ(error_with("/accuracy/same_bits", "yes"),
            "'accuracy': 'same_bits' is a JSON string; it must be true or false");
  EXPECT_EQ(error_with("/parallel/ranks", 5000),
            "'parallel': 'ranks' is 5000; it must be a whole number from 1 to 4096");
  EXPECT_EQ(error_with("/parallel/compute_s", {1}), "'parallel': 'compute_s' must be a list of 2 numbers");
  EXPECT_EQ(error_with("/parallel/compute_s", Json::array()),
            "'parallel': 'compute_s' must hold a number for each rank");
  EXPECT_EQ(error_with("/parallel/plan/by_round/0/area", {1, 2, 3}),
            "'parallel': 'area' must be a list of 2 numbers");
  EXPECT_EQ(error_with("/parallel/plan/by_round/0/moves/0/1", 2), "'parallel': 'moves' names rank 2 of 2");
  EXPECT_EQ(error_with("/parallel/plan/owned", Json::array({Json::array()})),
            "'parallel': 'owned' must have one list of ranges per rank");
  EXPECT_EQ(error_with("/measurements/0/samples_s", {0.1, 0}),
            "'measurements': 'samples_s' is 0; it must be above 0");
  EXPECT_EQ(error_with("/picture/size", 3), "'picture': 'data' must hold size * size = 9 bytes in base64");
  EXPECT_EQ(error_with("/versions", {{"torch", 2}}), "'versions' is a JSON number, not a string");
  EXPECT_EQ(error_with("/news", {{"deep", 1}}), "no error") << "a key of a later version";
}

// Reading and writing a published row keeps the value of every key: nothing is lost or rounded.
void expect_kept(const Json& before, const Json& after, const std::string& where) {
  if (before.is_object() && after.is_object()) {
    for (const auto& [key, value] : before.items()) {
      if (key == "crc32") continue;  // of the line's text, which the writer adds
      if (!after.contains(key)) {
        ADD_FAILURE() << where << "." << key << " is lost";
        continue;
      }
      expect_kept(value, after[key], where + "." + key);
    }
    return;
  }
  if (before.is_array() && after.is_array() && before.size() == after.size()) {
    for (size_t i = 0; i < before.size(); ++i) expect_kept(before[i], after[i], where);
    return;
  }
  EXPECT_EQ(before.dump(), after.dump()) << where;
}

TEST(Record, KeepsEveryPublishedRow) {
  int64_t rows = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(RESULTS_FOLDER)) {
    if (entry.path().extension() != ".jsonl") continue;
    std::ifstream file(entry.path());
    for (std::string text; std::getline(file, text); ++rows) {
      if (!text.starts_with(R"({"type")")) break;  // a probe's lines, not the runner's
      const ResultsLine line = parse_results_line(text);
      const Json again =
          line.type == ResultsLine::Type::kRun ? to_json(run_from(line)) : to_json(case_from(line));
      Json recorded = line.json;
      recorded.erase("crc32");  // belongs to the line, not to the record
      expect_kept(recorded, again, entry.path().filename().string());
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(rows, 1000);
}

TEST(Record, NestedObjectsAreReadToADepth) {
  const auto line = [](size_t depth) {
    const std::string deep = std::string(depth, '[') + std::string(depth, ']');
    return parse_results_line(R"({"type":"run","schema":1,"run":"a","machine":{"kind":"x","deep":)" + deep +
                              "}}");
  };
  const RunRecord run = run_from(line(60));
  EXPECT_EQ(fact_text(run.machine.facts(), "kind"), "x");
  EXPECT_LT(text_of(to_json(run)).size(), 400u);
  EXPECT_THROW(line(200'000), Error);
}

TEST(ResultsPage, HasEachKeyOnceInItsSection) {
  const std::string page = results_page();
  std::set<std::string> headings;
  for (size_t at = page.find("\n#"); at != std::string::npos; at = page.find("\n#", at + 1)) {
    const std::string heading = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
    EXPECT_TRUE(headings.insert(heading).second) << heading;
  }
  for (const char* key : {"| `time_s` |", "| `cpu_model` |", "| `planned_held_bytes` |", "| `owned` |"})
    EXPECT_THAT(page, HasSubstr(key));
  size_t begin = 0;
  for (size_t end; (end = page.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 160u) << page.substr(begin, end - begin);
}

}  // namespace
}  // namespace longspan::record
