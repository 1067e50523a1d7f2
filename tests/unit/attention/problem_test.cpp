#include "attention/problem.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace longspan {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::shared_ptr<const HeadMasks> causal(int64_t n, int64_t count = 1) {
  const Mask mask(n, n, {Band{{0, n}, {0, n}, kUnboundedBelow, 0}});
  return std::make_shared<HeadMasks>(count, mask);
}

Problem valid() {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = 100;
  problem.heads_q = 8;
  problem.heads_kv = 2;
  problem.head_dim = 64;
  problem.masks = causal(100);
  return problem;
}

TEST(Problem, AValidOneIsAccepted) {
  EXPECT_NO_THROW(valid().check());
  Problem per_head = valid();
  per_head.masks = causal(100, 2);
  EXPECT_NO_THROW(per_head.check());
}

TEST(Problem, EveryWrongFieldIsNamed) {
  const auto refused = [](auto change) {
    return [change] {
      Problem problem = valid();
      change(problem);
      problem.check();
    };
  };
  EXPECT_THAT(refused([](Problem& p) { p.tokens_q = 0; }), ThrowsMessage<Error>(HasSubstr("tokens_q is 0")));
  EXPECT_THAT(refused([](Problem& p) { p.tokens_kv = -5; }),
              ThrowsMessage<Error>(HasSubstr("tokens_kv is -5")));
  EXPECT_THAT(refused([](Problem& p) { p.heads_q = 0; }), ThrowsMessage<Error>(HasSubstr("heads_q is 0")));
  EXPECT_THAT(refused([](Problem& p) { p.heads_kv = 0; }), ThrowsMessage<Error>(HasSubstr("heads_kv is 0")));
  EXPECT_THAT(refused([](Problem& p) { p.heads_kv = 3; }),
              ThrowsMessage<Error>(HasSubstr("heads_q is 8; must be a multiple of heads_kv, 3")));
  EXPECT_THAT(refused([](Problem& p) { p.head_dim = 0; }), ThrowsMessage<Error>(HasSubstr("head_dim is 0")));
  EXPECT_THAT(refused([](Problem& p) { p.dtype = DType::kF64; }),
              ThrowsMessage<Error>(HasSubstr("dtype is f64")));
  EXPECT_THAT(refused([](Problem& p) { p.scale = std::numeric_limits<float>::quiet_NaN(); }),
              ThrowsMessage<Error>(HasSubstr("scale is nan")));
  EXPECT_THAT(refused([](Problem& p) { p.head_dim_v = -8; }),
              ThrowsMessage<Error>(HasSubstr("head_dim_v is -8")));
  EXPECT_THAT(refused([](Problem& p) { p.softcap = -1; }), ThrowsMessage<Error>(HasSubstr("softcap is -1")));
  EXPECT_THAT(refused([](Problem& p) {
                p.alibi_slopes = {1, 2};
              }),
              ThrowsMessage<Error>(HasSubstr("there are 2 alibi_slopes; must be one per query head (8)")));
  EXPECT_THAT(refused([](Problem& p) { p.alibi_slopes.assign(8, -1.0f); }),
              ThrowsMessage<Error>(HasSubstr("an ALiBi slope is -1")));
  EXPECT_THAT(refused([](Problem& p) {
                p.sinks = {1, 2};
              }),
              ThrowsMessage<Error>(HasSubstr("there are 2 sinks; must be one per query head (8)")));
  EXPECT_THAT(refused([](Problem& p) { p.sinks.assign(8, std::numeric_limits<float>::infinity()); }),
              ThrowsMessage<Error>(HasSubstr("a sink is inf")));
  EXPECT_THAT(refused([](Problem& p) { p.masks = nullptr; }),
              ThrowsMessage<Error>(HasSubstr("there is no mask")));
  EXPECT_THAT(refused([](Problem& p) { p.masks = std::make_shared<HeadMasks>(); }),
              ThrowsMessage<Error>(HasSubstr("there is no mask")));
  EXPECT_THAT(refused([](Problem& p) { p.masks = causal(100, 8); }),
              ThrowsMessage<Error>(HasSubstr("there are 8 masks")));
  EXPECT_THAT(refused([](Problem& p) { p.masks = causal(99); }),
              ThrowsMessage<Error>(HasSubstr("mask 0 has 99 rows and 99 columns")));
}

TEST(Problem, TheScaleIsGivenOrDerived) {
  Problem problem = valid();
  EXPECT_FLOAT_EQ(problem.softmax_scale(), 0.125f);
  problem.scale = 0.3f;
  EXPECT_EQ(problem.softmax_scale(), 0.3f);
}

TEST(Problem, QueryHeadsShareTheKvHeadOfTheirGroup) {
  Problem problem = valid();
  EXPECT_EQ(problem.group_size(), 4);
  for (int64_t h = 0; h < 8; ++h) EXPECT_EQ(problem.kv_head_of(h), h / 4);
  const Mask full(100, 100, {Band{{0, 100}, {0, 100}}});
  problem.masks = std::make_shared<HeadMasks>(HeadMasks{(*causal(100))[0], full});
  EXPECT_EQ(problem.mask_of_query_head(3), (*causal(100))[0]);
  EXPECT_EQ(problem.mask_of_query_head(4), full);
}

TEST(Problem, AreaAndFlopsAreOfTheVisiblePairsOfAllQueryHeads) {
  Problem problem = valid();
  EXPECT_EQ(problem.area(), 8 * 5050);
  EXPECT_EQ(flops(problem, Direction::kForward), 4.0 * 8 * 5050 * 64);
  EXPECT_EQ(flops(problem, Direction::kBackward), 10.0 * 8 * 5050 * 64);
  problem.head_dim_v = 32;
  EXPECT_EQ(flops(problem, Direction::kForward), 2.0 * 8 * 5050 * (64 + 32));
  EXPECT_EQ(flops(problem, Direction::kBackward), 2.0 * 8 * 5050 * (3 * 64 + 2 * 32));
  const Mask full(100, 100, {Band{{0, 100}, {0, 100}}});
  problem.masks = std::make_shared<HeadMasks>(HeadMasks{(*causal(100))[0], full});
  EXPECT_EQ(problem.area(), 4 * 5050 + 4 * 10000);
}

TEST(Direction, NamesAreRead) {
  for (Direction d : {Direction::kForward, Direction::kBackward}) {
    EXPECT_EQ(direction_from_name(name_of(d)), d);
  }
  EXPECT_EQ(direction_from_name("fwd"), Direction::kForward);
  EXPECT_EQ(direction_from_name("bwd"), Direction::kBackward);
  EXPECT_THAT([] { direction_from_name("up"); }, ThrowsMessage<Error>(HasSubstr("'up'")));
}

}  // namespace
}  // namespace longspan
