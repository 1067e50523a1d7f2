// The numbers of pass CTAs that were measured to be best, for the masks and lengths of the measurement (one
// NVIDIA H200, 64:8 heads, head_dim 128; docs/lab/2026-11-sm90-backward.md, versions 39 and 49).
#include "kernels/sm90/backward/planner/pass_ctas.h"

#include <string_view>
#include <utility>

#include <gmock/gmock.h>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/tuning/h200.h"
#include "mask/patterns/patterns.h"
#include "unit/kernels/sm90/drawn_problem.h"

namespace longspan::sm90 {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;
using testing::Lt;

constexpr int64_t kUnits = 132;

Problem problem_of(std::string_view name, int64_t seqlen, int64_t heads_q = 64, int64_t heads_kv = 8) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = heads_kv;
  return drawn_problem(name, options, heads_q, heads_kv);
}

int pass_ctas_of(const Problem& problem) {
  return arrange_backward(problem, choose_backward_shape(problem), kUnits).pass_ctas;
}

// Within 1 % of the fastest number that was tried, or within the measurement's error of that.
TEST(BackwardPassCtas, AreAsManyAsWereMeasuredToBeBest) {
  const struct {
    const char* mask;
    int64_t seqlen;
    int least, most;
  } measured[] = {
      {"causal_document", 8192, 5, 7},    {"causal_document", 32768, 8, 10},
      {"full_document", 8192, 4, 5},      {"full_document", 32768, 5, 7},
      {"share_question", 8192, 5, 6},     {"share_question", 32768, 5, 6},
      {"prefix_lm_document", 8192, 6, 7}, {"causal", 3072, 4, 6},
  };
  for (const auto& [mask, seqlen, least, most] : measured)
    EXPECT_THAT(pass_ctas_of(problem_of(mask, seqlen)), AllOf(Ge(least), Le(most))) << mask << seqlen;
}

TEST(BackwardPassCtas, AreNoneWhereNothingIsHidden) {
  EXPECT_EQ(pass_ctas_of(problem_of("full_document", 32768, 8, 1)), 0);     // one section
  EXPECT_EQ(pass_ctas_of(problem_of("causal_document", 32768, 16, 2)), 0);  // two
  EXPECT_EQ(pass_ctas_of(problem_of("share_question", 2048)), 0);           // with fewer items than CTAs
  EXPECT_EQ(pass_ctas_of(problem_of("causal_document", 4096, 16, 16)), 0);  // 20 tiles for each CTA
  for (const char* name : {"full", "causal", "block_causal_document"})
    EXPECT_EQ(pass_ctas_of(problem_of(name, 32768)), 0) << name;
}

TEST(BackwardPassCtas, GrowWithThePasses) {
  BackwardPassWork work{.units = kUnits,
                        .jobs = {{.section_heads = 1, .last_section = 7, .heads_kv = 8, .group = 8}, 541},
                        .section_items = 400,
                        .bytes_before = 32768,
                        .bytes_after = 49152,
                        .tiles = 192064};
  int before = choose_pass_ctas(work);
  EXPECT_GE(before, 8);
  work.bytes_before = 65536;
  EXPECT_GT(choose_pass_ctas(work), before);
  work.bytes_before = 32768;
  work.jobs.last_section = 2;  // it has six heads, which have to be prepared before
  EXPECT_GT(choose_pass_ctas(work), before);
  work.jobs.last_section = 7;
  for (; work.tiles < 400000; work.tiles += 10000) {
    const int now = choose_pass_ctas(work);
    EXPECT_LE(now, before);
    before = now;
  }
  work.tiles *= 3;
  EXPECT_THAT(choose_pass_ctas(work), AllOf(Ge(1), Lt(before)));  // there is little to hide
  work.tiles = 50000;
  EXPECT_GT(choose_pass_ctas(work), 20);
  work.jobs.last_section = 1;  // items would come to it before it is prepared
  EXPECT_EQ(choose_pass_ctas(work), 0);
}

// In proportion: six of sixteen SMs would cost more than all passes.
TEST(BackwardPassCtas, AreFewerOfFewerSms) {
  const Problem problem = problem_of("causal_document", 32768);
  const BackwardShape shape = choose_backward_shape(problem);
  const int most = pass_ctas_of(problem);
  for (const int64_t units : {114, 60, 32, 16, 8}) {
    const int64_t ctas = arrange_backward(problem, shape, units).pass_ctas;
    EXPECT_GE(ctas, 1) << units;
    EXPECT_LE(ctas, (most * units + kUnits - 1) / kUnits + 1) << units;
  }
}

TEST(BackwardPassCtas, AreAsManyAsAreAskedFor) {
  const Problem problem = problem_of("causal_document", 3000, 4, 2);
  BackwardShape shape = choose_backward_shape(problem);
  for (const int blocks : {0, 1, 14}) {
    shape.pass_ctas = blocks;
    EXPECT_EQ(arrange_backward(problem, shape, kUnits).pass_ctas, blocks);
  }
  EXPECT_EQ(arrange_backward(problem, shape, 8).pass_ctas, 4);  // items need some, too
  shape.in_rows = false;
  EXPECT_EQ(arrange_backward(problem, shape, kUnits).pass_ctas, 0);
}

}  // namespace
}  // namespace longspan::sm90
