// The exact text of the terminal table at several widths.
#include "report/table.h"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>

#include "lines.h"
#include "report/format.h"

namespace longspan::report {
namespace {

using test::case_json, test::run_json, test::text_of, test::unmeasured_json;
using ::testing::HasSubstr;
using ::testing::Not;

Results sample() {
  auto slow = case_json("cpu-naive", "causal", 0.25);
  auto sparse = case_json("cpu-flash", "uniform_block_sparse", 0.02);
  sparse["case"]["options"] = {{"block", 64}, {"density", 0.2}};
  sparse["measurements"][0]["converged"] = false;
  return parse_results(
      text_of(run_json(), slow, case_json("cpu-flash", "causal", 0.1), sparse,
              unmeasured_json("cpu-naive", "full", "skipped", "needs 17 GiB for the scores"),
              unmeasured_json("cpu-naive", "sliding_window", "skipped", "needs 17 GiB for the scores"),
              unmeasured_json("cpu-flash", "full", "failed", "timed out after 60 s")),
      "out/quick/results.jsonl");
}

TEST(Table, Wide) {
  EXPECT_EQ(format_table(sample(), {}), R"(quick
Made-up CPU, 2 threads; longspan 0123456789; ceiling f32 100 GFLOP/s
3 measured, 2 skipped, 1 failed; every case: seqlen 4K, 8:2 heads, head_dim 128, f32, fwd

kernel     mask                                       GFLOP/s  share      time  95 % interval    error    memory
cpu-flash  causal                                        50.0   50 %    100 ms  [99.0, 102] ms   0.100  3.00 MiB
cpu-naive  causal                                        20.0   20 %    250 ms  [248, 255] ms    0.100  3.00 MiB
cpu-flash  uniform_block_sparse block 64 density 0.2      250  250 %  20.0 ms~  [19.8, 20.4] ms  0.100  3.00 MiB

share: rate over the ceiling: a large matrix product, measured in the same run.
A share above 100 %: a faster product exists, or other work slowed the machine while the ceiling was measured.
error: the largest error of any output, over its tolerance.
~: the interval was still wider than the rule requires when the time budget ended.

Skipped
  cpu-naive: needs 17 GiB for the scores (2 cases)
    full 4K forward, sliding_window 4K forward

Failed
  cpu-flash: timed out after 60 s (1 case)
    full 4K forward
    repeat: longspan run --kernel cpu-flash --mask full
)");
}

TEST(Table, TellsTheSameBitsFromTheFast) {
  auto same = case_json("cpu-flash", "causal", 0.2);
  same["id"] = "same";
  same["case"]["deterministic"] = true;
  const auto fast = case_json("cpu-flash", "causal", 0.1);
  EXPECT_THAT(
      format_table(parse_results(text_of(run_json(), fast, same), "r.jsonl"), {}),
      testing::AllOf(HasSubstr("kernel     mask    same bits  GFLOP/s"),
                     HasSubstr("cpu-flash  causal  no   "), HasSubstr("cpu-flash  causal  required ")));
  EXPECT_THAT(format_table(parse_results(text_of(run_json(), same), "r.jsonl"), {}),
              HasSubstr("fwd, the same bits on every run\n"));
  EXPECT_THAT(format_table(parse_results(text_of(run_json(), fast), "r.jsonl"), {}),
              Not(HasSubstr("same bits")));
}

TEST(Table, TellsSinksFromPlainAttention) {
  auto with = case_json("cpu-flash", "causal", 0.2);
  with["id"] = "with";
  with["case"]["sinks"] = true;
  with["case"]["softcap"] = 30.0;
  const auto plain = case_json("cpu-flash", "causal", 0.1);
  const std::string both = format_table(parse_results(text_of(run_json(), plain, with), "r.jsonl"), {});
  EXPECT_THAT(both, HasSubstr("sinks  softcap"));
  EXPECT_THAT(both, testing::ContainsRegex("cpu-flash +causal +false +none +50.0"));
  EXPECT_THAT(both, testing::ContainsRegex("cpu-flash +causal +true +30 +25.0"));
  EXPECT_THAT(format_table(parse_results(text_of(run_json(), with), "r.jsonl"), {}),
              HasSubstr("fwd, sinks true, softcap 30\n"));
  EXPECT_THAT(format_table(parse_results(text_of(run_json(), plain), "r.jsonl"), {}),
              Not(HasSubstr("sinks")));
}

TEST(Table, StaysWithinTheWidth) {
  for (int width : {60, 72, 80, 100, 132}) {
    std::istringstream lines(format_table(sample(), {.width = width}));
    for (std::string line; std::getline(lines, line);) {
      if (line.find("repeat:") != std::string::npos) continue;  // a command is never broken
      EXPECT_LE(display_width(line), static_cast<size_t>(width)) << line;
    }
  }
}

TEST(Table, NarrowKeepsRateAndTimeAndPutsOptionsBelow) {
  const std::string text = format_table(sample(), {.width = 80});
  EXPECT_THAT(text, HasSubstr("uniform_block_sparse  "));
  EXPECT_THAT(text, HasSubstr("\n             block 64 density 0.2\n"));
  EXPECT_THAT(text, HasSubstr("GFLOP/s"));
  EXPECT_THAT(text, HasSubstr("20.0 ms~"));
}

TEST(Table, HasTotalMemoryWhereItWasRecordedAndFits) {
  auto line = case_json("a", "causal", 1);
  const Results old = parse_results(text_of(run_json(), line), "r.jsonl");
  EXPECT_THAT(format_table(old, {}), testing::AllOf(HasSubstr("  memory\n"), Not(HasSubstr("total"))));
  line["total_bytes"] = 5 << 20;
  const Results recorded = parse_results(text_of(run_json(), line), "r.jsonl");
  EXPECT_THAT(format_table(recorded, {}),
              testing::AllOf(HasSubstr("memory     total\n"), HasSubstr("3.00 MiB  5.00 MiB\n")));
  EXPECT_THAT(format_table(recorded, {.width = 72}), Not(HasSubstr("total")));
}

TEST(Table, GroupsWhatWasNotMeasuredByReason) {
  const std::string text = format_table(sample(), {});
  EXPECT_THAT(text, HasSubstr("Skipped\n  cpu-naive: needs 17 GiB for the scores (2 cases)\n"
                              "    full 4K forward, sliding_window 4K forward\n"));
  EXPECT_THAT(text, HasSubstr("Failed\n  cpu-flash: timed out after 60 s (1 case)\n    full 4K forward\n"
                              "    repeat: longspan run --kernel cpu-flash --mask full\n"));
}

TEST(Table, ColourOnlyWhereAskedFor) {
  EXPECT_THAT(format_table(sample(), {}), Not(HasSubstr("\x1b")));
  EXPECT_THAT(format_table(sample(), {.colour = true}), HasSubstr("\x1b[1;32mcpu-flash\x1b[0m"));
  const TableOptions to_file = table_options_for(std::tmpfile());
  EXPECT_FALSE(to_file.colour);
  EXPECT_EQ(to_file.width, 0);
}

TEST(Table, PassesNoEscapeSequenceOfAFileOn) {
  const Results hostile = parse_results(text_of(run_json(), case_json("\x1b[31mred", "\x1b]0;title\x07", 1),
                                                unmeasured_json("k", "m", "failed", "\x1b[2J")),
                                        "r.jsonl");
  EXPECT_THAT(format_table(hostile, {.width = 80}), Not(HasSubstr("\x1b")));
}

TEST(Table, SaysThatThereIsNothing) {
  EXPECT_EQ(format_table(Results{}, {}), "No results.\n");
}

}  // namespace
}  // namespace longspan::report
