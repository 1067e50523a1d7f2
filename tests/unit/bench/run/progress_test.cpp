// Progress lines, the bar, and the estimated time left.
#include "bench/run/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/bench/measure/fake_time.h"

namespace longspan::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Case case_of(const char* kernel, int64_t seqlen) {
  Case c;
  c.kernel = kernel;
  c.mask = "full";
  c.seqlen = seqlen;
  c.heads_q = c.heads_kv = 1;
  c.head_dim = 8;
  return c;
}

TEST(TimeLeft, PrefersTheMostSimilarCases) {
  const Case fast = case_of("fast", 1024), slow = case_of("slow", 1024), longer = case_of("slow", 4096),
             other = case_of("other", 1024);
  TimeLeft left({fast, slow, fast, longer, other});
  EXPECT_LT(left.estimate_s(), 0);
  left.done(fast, 2);
  EXPECT_DOUBLE_EQ(left.estimate_s(), 2 * 4);  // no better estimate is known for the others
  left.done(slow, 10);
  EXPECT_DOUBLE_EQ(left.estimate_s(), 2 + 10 + 6);  // same; same kernel; mean of all
  left.done(fast, 2);
  left.done(longer, 30);
  left.done(other, 1);
  EXPECT_DOUBLE_EQ(left.estimate_s(), 0);
}

std::string shown(bool terminal) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  FakeClock clock;
  const std::vector<Case> cases{case_of("fast", 1024), case_of("slow", 1024)};
  Progress progress(out, terminal, clock, cases, 3);
  record::Outcome fast;
  fast.status = record::Status::kOk;
  fast.time_s = 0.0123;
  fast.flops_per_s = 85.1e9;
  fast.share_of_ceiling = 0.61;
  progress.begin(cases[0]);
  progress.end(cases[0], fast, 4);
  progress.begin(cases[1]);
  progress.end(cases[1], record::Outcome::failed("it broke"), 4);
  progress.clear();
  std::fclose(out);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Progress, PrintsPlainLinesWithoutATerminal) {
  const std::string text = shown(false);
  EXPECT_EQ(text,
            "[4/5] fast full 1K, 1:1 heads of 8, f32, forward: 12.3 ms, 85.1 GFLOP/s, 61 % of the ceiling\n"
            "[5/5] slow full 1K, 1:1 heads of 8, f32, forward: failed: it broke\n");
}

TEST(Progress, HasABarWithTheTimeLeftOnATerminal) {
  const std::string text = shown(true);
  EXPECT_THAT(text, HasSubstr("4/5  about 4 s left  slow full 1K"));
  EXPECT_THAT(text, HasSubstr("\r\x1b[2K"));
}

}  // namespace
}  // namespace longspan::bench
