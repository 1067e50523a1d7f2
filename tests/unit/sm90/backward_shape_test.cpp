#include "kernels/sm90/backward_shape.h"

#include <memory>

#include <gmock/gmock.h>

#include "mask/patterns.h"

namespace longspan::sm90 {
namespace {

Problem problem_of(int64_t tokens, int64_t heads_q, int64_t heads_kv) {
  PatternOptions options;
  options.seqlen = tokens;
  Problem p;
  p.tokens_q = p.tokens_kv = tokens;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.head_dim = 128;
  p.dtype = DType::kBF16;
  p.masks = std::make_shared<const HeadMasks>(draw_mask("causal", options).masks);
  return p;
}

TEST(BackwardShape, KeepsGroupsTogetherWhereThereIsWorkForAll) {
  EXPECT_EQ(choose_backward_shape(problem_of(8192, 64, 8), 132).parts, 1);
  EXPECT_EQ(choose_backward_shape(problem_of(65536, 8, 1), 132).parts, 1);
}

TEST(BackwardShape, SharesGroupsOutWhereThereIsLittleWork) {
  EXPECT_EQ(choose_backward_shape(problem_of(4096, 64, 8), 132).parts, 2);
  EXPECT_EQ(choose_backward_shape(problem_of(2048, 64, 8), 132).parts, 4);
  EXPECT_EQ(choose_backward_shape(problem_of(128, 64, 8), 132).parts, 8);
  EXPECT_EQ(choose_backward_shape(problem_of(128, 12, 2), 132).parts, 2);  // a divisor of 6
  EXPECT_EQ(choose_backward_shape(problem_of(128, 8, 8), 132).parts, 1);
}

TEST(BackwardShape, KeepsGroupsTogetherForTheSameBits) {
  Problem problem = problem_of(1024, 64, 8);
  problem.deterministic = true;
  EXPECT_EQ(choose_backward_shape(problem, 132).parts, 1);
}

}  // namespace
}  // namespace longspan::sm90
