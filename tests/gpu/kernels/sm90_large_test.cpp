// sm90 above head_dim 128 against the fp64 oracle: every pattern, odd lengths, layouts of heads, partial
// results, equal bits.
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "edges.h"
#include "hopper.h"
#include "in_parts.h"
#include "kernels/sm90/sm90.h"
#include "mask/patterns/patterns.h"
#include "output_bytes.h"

namespace longspan {
namespace {

constexpr int64_t kBelow = kUnboundedBelow, kAbove = kUnboundedAbove;

struct HeadDims {
  int64_t qk, v;
};
constexpr HeadDims kLarge[] = {{192, 128}, {256, 256}};

Problem problem_with(HeadDims dims, HeadMasks masks, int64_t heads_q, int64_t heads_kv,
                     DType dtype = DType::kBF16) {
  Problem problem = problem_of(std::move(masks), heads_q, heads_kv, dims.qk, dtype);
  problem.head_dim_v = dims.v;
  return problem;
}

void expect_right(const Problem& problem) {
  expect_right(sm90_kernel(), problem);
}

TEST(Sm90Large, ComputesEveryPattern) {
  LONGSPAN_NEEDS_HOPPER();
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(pattern.name);
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{8, 1}, {6, 3}, {2, 2}}) {
      PatternOptions options;
      options.seqlen = 2048 + (pattern.block_sparse ? 0 : 100 * q + kv);
      options.kv_heads = kv;
      options.lengths = "uniform:50:700";
      if (pattern.suit_length != nullptr) pattern.suit_length(options);
      const HeadMasks masks = draw_mask(pattern.name, options).masks;
      for (const HeadDims dims : kLarge) {
        Problem problem = problem_with(dims, masks, q, kv);
        expect_right(problem);
        problem.deterministic = true;
        expect_right(problem);
        expect_right(problem_with(dims, masks, q, kv, DType::kF16));
      }
    }
  }
}

TEST(Sm90Large, ComputesLengthsThatDoNotDivideItsTiles) {
  LONGSPAN_NEEDS_HOPPER();
  for (const int64_t s : {1, 15, 16, 17, 47, 48, 49, 63, 65, 79, 80, 81, 95, 97, 127, 129, 161, 1000}) {
    for (const HeadDims dims : kLarge) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        expect_right(problem_with(dims, {one_band(s, s, kBelow, kAbove)}, 8, 2, dtype));
        expect_right(problem_with(dims, {one_band(s, s, kBelow, 0)}, 8, 1, dtype));
        if (s > 60) expect_right(problem_with(dims, {one_band(s, s, -50, 3)}, 3, 3, dtype));
      }
    }
  }
}

TEST(Sm90Large, ComputesQueriesAndKeysOfDifferentLengths) {
  LONGSPAN_NEEDS_HOPPER();
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 777}, {777, 1}, {300, 2300}, {2300, 300}}) {
    for (const HeadDims dims : kLarge) {
      Problem problem = problem_with(dims, {one_band(rows, columns, kBelow, columns - rows)}, 8, 2);
      expect_right(problem);
      problem.fp32_output = true;
      expect_right(problem);
      problem.own_rows = true;
      expect_right(problem);
    }
  }
}

// Row tiles in odd and even numbers, so that a CTA of a pair may be without rows.
TEST(Sm90Large, ComputesInPairsOfCtas) {
  LONGSPAN_NEEDS_HOPPER();
  for (const auto& [rows, columns, q, kv] : {std::tuple<int64_t, int64_t, int64_t, int64_t>{33, 500, 384, 48},
                                             {257, 81, 48, 48},
                                             {2300, 4096, 9, 9},
                                             {1900, 1900, 16, 2},
                                             {2001, 777, 64, 8},
                                             {4096, 300, 12, 12}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Problem problem = problem_with({256, 256}, {one_band(rows, columns, kBelow, kAbove)}, q, kv, dtype);
      ASSERT_TRUE(sm90::choose_forward_shape(problem, first_gpu()).paired) << rows;
      expect_right(problem);
      problem.fp32_output = true;
      expect_right(problem);
      problem.own_rows = true;
      expect_right(problem);
    }
  }
}

TEST(Sm90Large, ComputesEveryLayoutOfHeads) {
  LONGSPAN_NEEDS_HOPPER();
  for (const auto& [q, kv] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 3}, {12, 4}, {10, 2}, {16, 1}, {32, 4}, {40, 8}})
    for (const HeadDims dims : kLarge)
      expect_right(problem_with(dims, {one_band(700, 700, kBelow, 0)}, q, kv));
}

// Items of one tile and of none follow each other, so a warpgroup may be several items ahead of the other.
TEST(Sm90Large, ComputesManyShortItems) {
  LONGSPAN_NEEDS_HOPPER();
  PatternOptions options;
  options.seqlen = 12000;
  options.lengths = "uniform:1:40";
  for (const char* name : {"causal_document", "full_document"}) {
    const HeadMasks masks = draw_mask(name, options).masks;
    for (const HeadDims dims : kLarge) {
      expect_right(problem_with(dims, masks, 16, 2));
      expect_right(problem_with(dims, masks, 4, 4));
      expect_right(problem_with(dims, {Mask(12000, 12000, std::vector<Band>{{{0, 3000}, {5, 6}}})}, 4, 4));
    }
  }
}

TEST(Sm90Large, FollowsScoresThatOutgrowTheirFirstMaximum) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  for (const HeadDims dims : kLarge) {
    Problem problem = problem_with(dims, {one_band(1500, 1500, kBelow, 0)}, 8, 2);
    problem.scale = 1;
    const std::unique_ptr<Plan> plan = sm90_kernel().plan_forward(problem, gpu);
    const VerifyReport report = verify(*plan, problem, Direction::kForward, gpu, {});
    ASSERT_EQ(report.tensors.size(), 2u) << report.failure;
    EXPECT_EQ(report.tensors[0].failure, "");
    EXPECT_EQ(report.counting, "pass");
  }
}

TEST(Sm90Large, MergesPartialResults) {
  LONGSPAN_NEEDS_HOPPER();
  const auto shape_of = [](const Problem& problem) {
    return sm90::choose_forward_shape(problem, first_gpu());
  };
  for (const HeadDims dims : kLarge) {
    for (const int64_t hi : {int64_t{0}, kAbove}) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        for (const bool fp32_output : {false, true}) {
          Problem problem = problem_with(dims, {one_band(1900, 1900, kBelow, hi)}, 6, 3, dtype);
          problem.fp32_output = fp32_output;
          InParts plan(problem, 777, shape_of);
          EXPECT_EQ(verify(plan, problem, Direction::kForward, first_gpu(), {}).failure, "");
        }
      }
    }
  }
}

TEST(Sm90Large, GivesTheSameBitsEveryTime) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  PatternOptions options;
  options.seqlen = 4096;
  options.lengths = "uniform:50:500";
  for (const char* name : {"full", "causal", "causal_document"}) {
    for (const HeadDims dims : kLarge) {
      const Problem problem = problem_with(dims, draw_mask(name, options).masks, 16, 2);
      const std::unique_ptr<Plan> plan = sm90_kernel().plan_forward(problem, gpu);
      ProblemTensors tensors(problem, Direction::kForward, gpu, *plan);
      tensors.fill_inputs(1);
      const std::vector<char> first = forward_bytes(*plan, problem, tensors);
      for (int repeat = 0; repeat < 300; ++repeat)
        ASSERT_EQ(forward_bytes(*plan, problem, tensors), first) << "repeat " << repeat;
    }
  }
}

TEST(Sm90Large, GivesTheSameGradientsEveryTimeIfDeterministic) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  PatternOptions options;
  options.seqlen = 2048;
  options.kv_heads = 2;
  for (const char* name :
       {"full", "causal", "causal_document", "share_question", "sliding_window", "uniform_block_sparse"}) {
    for (const HeadDims dims : kLarge) {
      SCOPED_TRACE(fmt::format("{}, head_dim {}", name, dims.qk));
      Problem problem = problem_with(dims, draw_mask(name, options).masks, 16, 2);
      problem.deterministic = true;
      const std::unique_ptr<Plan> plan = sm90_kernel().plan(problem, gpu);
      ProblemTensors tensors(problem, Direction::kBackward, gpu, *plan);
      tensors.fill_inputs(1);
      tensors.forward(*plan);
      const std::vector<char> first = gradient_bytes(*plan, tensors);
      for (int repeat = 0; repeat < 200; ++repeat)
        ASSERT_EQ(gradient_bytes(*plan, tensors), first) << "repeat " << repeat;
    }
  }
}

// Sums of dk and dv that several items share, and long runs of full tiles, at which CTAs of a head meet.
TEST(Sm90Large, ComputesLongColumns) {
  LONGSPAN_NEEDS_HOPPER();
  for (const HeadDims dims : kLarge) {
    for (const bool deterministic : {false, true}) {
      for (const auto& [rows, q, kv] :
           {std::tuple<int64_t, int64_t, int64_t>{4333, 8, 2}, {13001, 8, 2}, {8261, 2, 1}}) {
        Problem problem = problem_with(dims, {one_band(rows, 700, kBelow, kAbove)}, q, kv);
        problem.deterministic = deterministic;
        expect_right(problem);
        problem.fp32_output = true;
        expect_right(problem);
      }
      Problem problem = problem_with(dims, {one_band(4333, 4333, kBelow, 0)}, 8, 1);
      problem.deterministic = deterministic;
      expect_right(problem);
      problem.lse_gradient = true;
      expect_right(problem);
    }
  }
}

}  // namespace
}  // namespace longspan
