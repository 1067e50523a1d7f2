// Workloads: files read back and refused, drawing, packing, and the cases of their steps.
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/spec/draw_workload.h"
#include "bench/spec/workload_cases.h"
#include "bench/spec/workload_file.h"
#include "mask/patterns/patterns.h"

namespace longspan::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kHeader =
    R"({"type":"workload","version":1,"model":{"heads_q":8,"heads_kv":2,"head_dim":64,"layers":4}})";
constexpr std::string_view kStep = R"({"mask":"causal_document","micro_batches":[[5,3],[8]]})";

std::string file(std::string_view header, std::string_view step) {
  return fmt::format("{}\n{}\n", header, step);
}

std::string text_of(const Workload& workload) {
  std::ostringstream out;
  write_workload(workload, out);
  return out.str();
}

// The message about a file, without its name.
std::string message_of(const std::string& text) {
  try {
    parse_workload(text, "w.jsonl");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_EQ(message.find("w.jsonl:"), 0u) << message;
    return message.substr(7);
  }
  return "no error";
}

TEST(WorkloadFile, HasPresetsForWhatIsLeftOut) {
  const Workload w = parse_workload(file(kHeader, kStep), "w.jsonl");
  EXPECT_EQ(w.heads_q, 8);
  EXPECT_EQ(w.layers, 4);
  EXPECT_EQ(w.dtype, DType::kBF16);
  EXPECT_EQ(w.dp * w.cp * w.pp * w.tp, 1);
  ASSERT_EQ(w.steps.size(), 1u);
  EXPECT_THAT(w.steps[0].micro_batches, ElementsAre(ElementsAre(5, 3), ElementsAre(8)));
}

TEST(WorkloadFile, ReadsBackWhatItWrote) {
  Workload w = parse_workload(file(kHeader, kStep), "w.jsonl");
  w.source = "a test, \"quoted\"";
  w.outside_s_per_token = 1.25e-6;
  w.memory_bytes = 40e9;
  w.dp = 3;
  w.cp = 4;
  w.pp = 2;
  w.tp = 8;
  w.machine = "H200";
  w.nodes = 2;
  w.gpus_per_node = 8;
  w.steps.push_back({"prefix_lm_document", OptionValues().set("prefix", int64_t{7}), {{100, 20}}});
  const std::string text = text_of(w);
  const Workload again = parse_workload(text, "w.jsonl");
  EXPECT_EQ(text_of(again), text);
  EXPECT_EQ(again.steps[1].options, w.steps[1].options);
  EXPECT_EQ(again.heads_q_per_gpu(), 1);
  EXPECT_EQ(again.heads_kv_per_gpu(), 1);
}

TEST(WorkloadFile, NamesTheLineTheKeyAndWhatIsAllowed) {
  const auto header = [](std::string_view model, std::string_view more = "") {
    return fmt::format(R"({{"type":"workload","version":1,"model":{{{}}}{}}})", model, more);
  };
  const std::string model = R"("heads_q":8,"heads_kv":2,"head_dim":64,"layers":4)";
  const std::pair<std::string, std::string> files[] = {
      {"", ": holds no step"},
      {std::string(kHeader) + "\n", ": holds no step"},
      {file(kStep, kStep), ":1: 'mask' is unknown; the keys here are type, version, "},
      {file("[1]", kStep), ":1: the line must be an object"},
      {file("{", kStep), ":1: not valid JSON"},
      {file(R"({"version":1})", kStep), ":1: the first line must be the header"},
      {file(R"({"type":"workload","version":2})", kStep), ":1: 'version' 2 is unknown; this longspan reads"},
      {file(R"({"type":"workload","version":1})", kStep), ":1: 'model' is missing"},
      {file(header(R"("heads_q":8)"), kStep), ":1: 'model.heads_kv' is missing"},
      {file(header(model + R"(,"layer":4)"), kStep), ":1: 'model.layer' is unknown; the keys here are"},
      {file(header(R"("heads_q":8,"heads_kv":3,"head_dim":64,"layers":4)"), kStep),
       ":1: heads_q 8 must be a multiple of heads_kv 3"},
      {file(header(R"("heads_q":8,"heads_kv":0,"head_dim":64,"layers":4)"), kStep),
       ":1: 'model.heads_kv' must be a whole number from 1 to 65536, is 0"},
      {file(header(model + R"(,"dtype":"f8")"), kStep), ":1: 'model.dtype': "},
      {file(header(model, R"(,"parallel":{"tp":3})"), kStep), ":1: tp 3 must divide heads_q 8"},
      {file(header(model, R"(,"parallel":{"pp":3})"), kStep), ":1: pp 3 must divide the 4 layers"},
      {file(header(model, R"(,"parallel":{"cp":1e3})"), kStep), ":1: 'parallel.cp' must be a whole number"},
      {file(header(model, R"(,"memory_bytes":-1)"), kStep), ":1: 'memory_bytes' must be a number from 0"},
      {file(header(model, R"(,"outside_s_per_token":"1")"), kStep),
       ":1: 'outside_s_per_token' must be a number from 0 to 1, is \"1\""},
      {file(kHeader, kHeader), ":2: 'type' is unknown; the keys here are mask, options, micro_batches"},
      {file(kHeader, R"({"micro_batches":[[1]]})"), ":2: 'mask' is missing"},
      {file(kHeader, R"({"mask":"causal","micro_batches":[[1]]})"),
       ":2: 'mask' must be a pattern of documents, one of full_document, causal_document, "},
      {file(kHeader, R"({"mask":"causal_document","micro_batches":[]})"),
       ":2: 'micro_batches' must be a list that is not empty"},
      {file(kHeader, R"({"mask":"causal_document","micro_batches":[[1],[]]})"),
       ":2: 'micro_batches[1]' must be a list of document lengths"},
      {file(kHeader, R"({"mask":"causal_document","micro_batches":[[1],[2,0]]})"),
       ":2: 'micro_batches[1][1]' must be a whole number from 1 to 2147483647, is 0"},
      {file(kHeader, R"({"mask":"causal_document","micro_batches":[[18446744073709551615]]})"),
       ":2: 'micro_batches[0][0]' must be a whole number"},
      {file(kHeader, R"({"mask":"causal_document","micro_batches":[[2147483647,1]]})"),
       ":2: 'micro_batches[0]' has more than 2147483647 tokens"},
      {file(kHeader, R"({"mask":"causal_document","options":{"prefix":1},"micro_batches":[[1]]})"),
       ":2: 'options.prefix' is unknown"},
      {file(kHeader, R"({"mask":"prefix_lm_document","options":{"prefix":"1"},"micro_batches":[[1]]})"),
       ":2: option 'prefix' has a value of the wrong type"},
      {file(kHeader, fmt::format("\n  \n{}\n{{\"mask\":1}}", kStep)), ":5: 'mask' must be a text, is 1"},
      {file(kHeader, std::string(100000, '[')), ":2: "},
      {file(kHeader, R"({"mask":"causal_document","mask":"x"})"), ":2: "},
  };
  for (const auto& [text, part] : files)
    EXPECT_THAT(message_of(text), HasSubstr(part)) << text.substr(0, 200);
}

// A reader turns any bytes into a workload or an input error of one line.
TEST(WorkloadFile, SurvivesMutatedFiles) {
  const std::string seeds[] = {
      file(kHeader, kStep),
      file(R"({"type":"workload","version":1,"source":"x","model":{"heads_q":8,"heads_kv":2,)"
           R"("head_dim":64,"layers":4,"dtype":"f32"},"outside_s_per_token":1e-6,)"
           R"("memory_bytes":1e9,"parallel":{"dp":2,"cp":2,"pp":2,"tp":2},)"
           R"("cluster":{"machine":"m","nodes":1,"gpus_per_node":8}})",
           R"({"mask":"prefix_lm_document","options":{"prefix":9},"micro_batches":[[9,1]]})")};
  const std::string pieces[] = {"[",
                                "]",
                                "{",
                                "}",
                                "\"",
                                ",",
                                ":",
                                "\n",
                                std::string(1, '\0'),
                                "-",
                                "1e999",
                                "null",
                                "9223372036854775808",
                                "\\u0000",
                                "\xff",
                                "\x1b[2J",
                                "true",
                                "0.5"};
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seeds[below(2)];
    for (size_t n = 1 + below(3); n > 0; --n) {
      const size_t at = below(text.size() + 1);
      const std::string& piece = pieces[below(std::size(pieces))];
      switch (below(4)) {
        case 0:
          text.insert(at, piece);
          break;
        case 1:
          text.erase(at, 1 + below(8));
          break;
        case 2:
          text.replace(at, std::min<size_t>(1, text.size() - at), piece);
          break;
        default:
          text += text.substr(at, below(60));
      }
    }
    if (message_of(text) == "no error") ++read;
  }
  EXPECT_GT(read, 100);  // some mutations are harmless
  EXPECT_LT(read, 15000);
}

std::set<int64_t> sums(const std::vector<std::vector<MicroBatch>>& steps) {
  std::set<int64_t> sums;
  for (const auto& step : steps)
    for (const MicroBatch& batch : step) sums.insert(tokens_of(batch));
  return sums;
}

TEST(DrawWorkload, IsAPureFunctionOfItsArguments) {
  // Drawn once, so that a change of the generator or of the histograms shows.
  const LengthSource source = LengthSource::from_name("prolong64k", 4096);
  const Drawing drawing{.steps = 2, .micro_batches = 2, .tokens = 4096, .seed = 7};
  const auto steps = draw_micro_batches(source, drawing);
  EXPECT_EQ(steps, draw_micro_batches(source, drawing));
  EXPECT_THAT(steps[0][0], ElementsAre(233, 259, 70, 259, 1558, 55, 303, 91, 71, 1197));
  Drawing other = drawing;
  other.seed = 8;
  EXPECT_NE(steps, draw_micro_batches(source, other));
}

TEST(DrawWorkload, CutsTheLastDocumentToFit) {
  const auto steps = draw_micro_batches(LengthSource::from_name("uniform:100:900", 1000),
                                        {.steps = 5, .micro_batches = 3, .tokens = 1000});
  EXPECT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[4].size(), 3u);
  EXPECT_THAT(sums(steps), ElementsAre(1000));
}

TEST(DrawWorkload, KeepsDocumentsWholeAndLosesNone) {
  const auto steps =
      draw_micro_batches(LengthSource::from_name("list:300:600:450:2000", 1000),
                         {.steps = 50, .micro_batches = 4, .tokens = 1000, .packing = Packing::kWhole});
  std::set<int64_t> lengths;
  int64_t tokens = 0;
  for (const auto& step : steps) {
    for (const MicroBatch& batch : step) {
      EXPECT_FALSE(batch.empty());
      EXPECT_LE(tokens_of(batch), 1000);
      lengths.insert(batch.begin(), batch.end());
      tokens += tokens_of(batch);
    }
  }
  EXPECT_THAT(lengths, ElementsAre(300, 450, 600, 1000));  // 2000 is cut to a micro-batch
  EXPECT_GT(tokens, 50 * 4 * 800);
}

TEST(DrawWorkload, RefusesMixturesOfASequence) {
  const LengthSource mix = LengthSource::from_name("long-mix", 8192);
  EXPECT_THROW(draw_micro_batches(mix, {.steps = 1, .micro_batches = 1, .tokens = 8192}), Error);
}

TEST(WorkloadCases, AreBothPassesOfEachMicroBatchForEachContender) {
  Workload w =
      parse_workload(file(kHeader, R"({"mask":"causal_document","micro_batches":[[5,3],[8],[5,3],[4,4]]})") +
                         std::string(kStep),
                     "w.jsonl");
  w.dp = 2;
  w.cp = 4;
  Group given;
  for (const char* strategy : {"ulysses", "balanced"})
    add_value(given, *find_axis("strategy"), {strategy, "--strategy"});
  add_value(given, *find_axis("kernel"), {"k", "--kernel"});
  const WorkloadCases made = cases_of(w, given, {"k"}, {"k"});
  EXPECT_EQ(made.cases.size(), 3u * 2 * 2);  // [5,3], [8] and [4,4]
  ASSERT_EQ(made.series.size(), 2u);
  std::set<std::string> ids;
  for (const Case& c : made.cases) {
    ids.insert(id_of(c));
    EXPECT_EQ(c.parallelism.ranks, 4);
    EXPECT_EQ(c.seqlen, 8);
    EXPECT_EQ(c.dtype, DType::kBF16);
    EXPECT_EQ(draw_mask(c.mask, c.pattern_options(0)).document_lengths.front(), c.lengths == "list:8" ? 8
                                                                                : c.lengths == "list:5:3"
                                                                                    ? 5
                                                                                    : 4);
  }
  std::set<std::string> named;
  for (const WorkloadSeries& series : made.series) {
    ASSERT_EQ(series.steps.size(), 2u);
    ASSERT_EQ(series.steps[0].size(), 2u);         // replicas
    EXPECT_EQ(series.steps[0][0].size(), 2u * 2);  // micro-batches 0 and 2, which are equal
    EXPECT_EQ(series.steps[0][0][0], series.steps[0][0][2]);
    EXPECT_EQ(series.steps[1][0].size(), 2u);
    for (const auto& step : series.steps)
      for (const auto& replica : step) named.insert(replica.begin(), replica.end());
  }
  EXPECT_EQ(named, ids);
}

TEST(WorkloadCases, RefuseWhatTheWorkloadSays) {
  const Workload w = parse_workload(file(kHeader, kStep), "w.jsonl");
  for (const auto& [axis, value] :
       {std::pair{"mask", "full"}, {"seqlen", "1K"}, {"lengths", "pile"}, {"prefix", "3"}}) {
    Group given;
    add_value(given, *find_axis(axis), {value, "--x"});
    try {
      cases_of(w, given, {"k"}, {"k"});
      ADD_FAILURE() << axis;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot be combined with --workload"));
    }
  }
}

}  // namespace
}  // namespace longspan::bench
