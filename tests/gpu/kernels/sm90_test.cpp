// Both passes of sm90 against the fp64 oracle at the edges of its tiles: odd lengths, differing lengths,
// every head layout, rows without keys, scores that outgrow their first maximum. It also checks equal bits on
// every run. The sweep over all patterns is in verify_test.
#include "kernels/sm90/sm90.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "api/checked_plan.h"
#include "attention/oracle/verify.h"
#include "base/error.h"
#include "edges.h"
#include "hopper.h"
#include "mask/patterns/patterns.h"
#include "output_bytes.h"

namespace longspan {
namespace {

constexpr int64_t kBelow = kUnboundedBelow;

void expect_right(const Problem& problem) {
  expect_right(sm90_kernel(), problem);
}

TEST(Sm90, ComputesLengthsThatDoNotDivideItsTiles) {
  LONGSPAN_NEEDS_HOPPER();
  expect_right_at_lengths(
      sm90_kernel(), {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 159, 161, 191, 193, 319, 321, 1000}, {64, 128});
}

TEST(Sm90, ComputesQueriesAndKeysOfDifferentLengths) {
  LONGSPAN_NEEDS_HOPPER();
  expect_right_where_lengths_differ(sm90_kernel());
}

TEST(Sm90, ComputesEveryLayoutOfHeads) {
  LONGSPAN_NEEDS_HOPPER();
  expect_right_with_heads(sm90_kernel(), {64, 128});
}

TEST(Sm90, GivesZeroToRowsWithoutKeys) {
  LONGSPAN_NEEDS_HOPPER();
  expect_zero_for_rows_without_keys(sm90_kernel());
}

// With scores of +-35 the error of lse reaches 1.3e-5, a little above its tolerance, so the test does not ask
// for it: the tensor cores truncate sums of products, as a cuBLAS product of the same kind shows
// (docs/lab/2026-11-sm90-forward.md, "The error of lse"). o must meet its usual tolerance.
TEST(Sm90, FollowsScoresThatOutgrowTheirFirstMaximum) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t hi : {int64_t{0}, kUnboundedAbove}) {
      Problem problem = problem_of({one_band(1500, 1500, kBelow, hi)}, 8, 2, 128, dtype);
      problem.scale = 1;  // e^70 between the smallest and the largest weight
      const std::unique_ptr<Plan> plan = sm90_kernel().plan(problem, gpu);
      const VerifyReport report = verify(*plan, problem, Direction::kForward, gpu, {});
      ASSERT_EQ(report.tensors.size(), 2u) << report.failure;
      EXPECT_EQ(report.tensors[0].failure, "");
      EXPECT_LT(report.tensors[1].error, 2e-5) << report.tensors[1].failure;
      EXPECT_EQ(report.counting, "pass");
    }
  }
}

TEST(Sm90, SumsLongRowsBesideRowsThatHaveSeenNoKey) {
  LONGSPAN_NEEDS_HOPPER();
  expect_no_drift_on_long_rows(sm90_kernel());
}

TEST(Sm90, ComputesBlocksOfEverySize) {
  LONGSPAN_NEEDS_HOPPER();
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{4, 4}, {8, 2}, {4, 2}}) {
    for (const int64_t block : {64, 128}) {
      for (const int64_t head_dim : {64, 128}) {
        for (const double density : {0.3, 0.9}) {
          PatternOptions options;
          options.seqlen = 2000;
          options.values.set("block", block);
          options.values.set("density", density);
          options.kv_heads = kv;
          expect_right(
              problem_of(draw_mask("uniform_block_sparse", options).masks, q, kv, head_dim, DType::kBF16));
        }
      }
    }
  }
}

// Backward tiles begin with documents, unless these are too short. Row tiles begin and end with these blocks,
// with every number of rows in the last one.
TEST(Sm90, ComputesBlocksThatEndAnywhere) {
  LONGSPAN_NEEDS_HOPPER();
  std::vector<Band> bands;
  int64_t row = 5;  // the first and last rows see nothing
  for (int64_t length = 257; length < 400; length += 9) {
    bands.push_back({{row, row + length}, {row / 2, row / 2 + 200}});
    if (length % 2 == 0) bands.push_back({{row, row + length}, {row / 2 + 300, row / 2 + 301}});
    row += length;
  }
  const Mask mask(row + 70, row, bands);
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{3, 3}, {4, 2}, {8, 1}}) {
    for (const int64_t head_dim : {64, 128}) {
      Problem problem = problem_of({mask}, q, kv, head_dim, head_dim == 64 ? DType::kF16 : DType::kBF16);
      expect_right(problem);
      problem.fp32_output = true;
      expect_right(problem);
    }
  }
}

TEST(Sm90, ComputesDocumentsOfAllLengths) {
  LONGSPAN_NEEDS_HOPPER();
  for (const char* name : {"causal_document", "full_document", "share_question", "prefix_lm_document"}) {
    for (const char* lengths : {"uniform:100:700", "uniform:1:90", "uniform:60:200"}) {
      PatternOptions options;
      options.seqlen = 3000;
      options.lengths = lengths;
      const HeadMasks masks = draw_mask(name, options).masks;
      expect_right(problem_of(masks, 8, 1, 64, DType::kF16));
      for (const bool same_bits : {false, true}) {
        Problem problem = problem_of(masks, 4, 2, 128, DType::kBF16);
        problem.deterministic = same_bits;
        problem.fp32_output = !same_bits;
        expect_right(problem);
      }
    }
  }
}

// Tiles of head_dim 64 are of their own: three or four warpgroups of rows forward, 128 rows or 192 keys
// backward in bf16.
TEST(Sm90, ComputesEveryDenseMaskAtHeadDim64) {
  LONGSPAN_NEEDS_HOPPER();
  for (const Pattern& p : patterns()) {
    if (p.block_sparse) continue;
    PatternOptions options;
    options.lengths = "uniform:50:500";
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{8, 1}, {8, 2}, {6, 3}, {3, 3}}) {
      options.seqlen = 1800 + 100 * q + kv;
      if (p.suit_length != nullptr) p.suit_length(options);
      const HeadMasks masks = draw_mask(p.name, options).masks;
      expect_right(problem_of(masks, q, kv, 64, DType::kBF16));
    }
    options.seqlen = 1337;
    if (p.suit_length != nullptr) p.suit_length(options);
    Problem problem = problem_of(draw_mask(p.name, options).masks, 4, 2, 64, DType::kBF16);
    problem.fp32_output = true;
    expect_right(problem);
    problem.fp32_output = false, problem.deterministic = true;
    expect_right(problem);
    problem.deterministic = false, problem.dtype = DType::kF16;
    expect_right(problem);
  }
}

// In long columns, sums of dq have another layout.
TEST(Sm90, ComputesLongColumns) {
  LONGSPAN_NEEDS_HOPPER();
  expect_right(problem_of({one_band(2300, 2300, kBelow, kUnboundedAbove)}, 4, 2, 128, DType::kBF16));
  expect_right(problem_of({one_band(4333, 4333, kBelow, 0)}, 8, 2, 128, DType::kF16));
  expect_right(problem_of({one_band(5000, 300, kBelow, kUnboundedAbove)}, 2, 2, 128, DType::kBF16));
  Problem problem = problem_of({one_band(2500, 2300, -2400, kUnboundedAbove)}, 2, 1, 128, DType::kBF16);
  problem.fp32_output = true;
  expect_right(problem);
  // Tiles of 80 rows; the last one has any number.
  for (const int64_t rows : {8261, 8321}) {
    expect_right(problem_of({one_band(rows, rows, kBelow, 0)}, 2, 1, 128, DType::kF16));
    problem = problem_of({one_band(rows, 400, -8200, kUnboundedAbove)}, 6, 2, 128, DType::kBF16);
    problem.fp32_output = true;
    expect_right(problem);
    expect_right(problem_of({one_band(rows, 400, -8200, kUnboundedAbove)}, 6, 2, 64, DType::kBF16));
  }
  // Row tiles that begin with documents, whose sums start at zero.
  PatternOptions options;
  options.seqlen = 6000;
  options.lengths = "uniform:1100:1900";
  for (const int64_t head_dim : {64, 128})
    expect_right(problem_of(draw_mask("full_document", options).masks, 4, 2, head_dim, DType::kBF16));
}

// One mask for each way to make tiles: narrow, wide, blocks of 128, blocks of 64 gathered in one stream and
// in two, three and four warpgroups.
TEST(Sm90, GivesTheSameBitsEveryTime) {
  LONGSPAN_NEEDS_HOPPER();
  struct Case {
    const char* name;
    int64_t seqlen, heads_q, heads_kv, block, head_dim = 128;
  };
  for (const Case& c :
       {Case{"causal", 2048, 16, 4, 64, 64}, Case{"causal", 2048, 4, 4, 64, 64},
        Case{"causal_document", 2048, 16, 2, 64}, Case{"causal", 2048, 16, 2, 64},
        Case{"uniform_block_sparse", 2048, 4, 4, 128}, Case{"uniform_block_sparse", 2048, 8, 2, 64},
        Case{"uniform_block_sparse", 2048, 4, 4, 64}}) {
    SCOPED_TRACE(c.name);
    PatternOptions options;
    options.seqlen = c.seqlen;
    options.kv_heads = c.heads_kv;
    options.values.set("block", c.block);
    const Problem problem =
        problem_of(draw_mask(c.name, options).masks, c.heads_q, c.heads_kv, c.head_dim, DType::kBF16);
    const Device gpu = first_gpu();
    const std::unique_ptr<Plan> plan = sm90_kernel().plan_forward(problem, gpu);
    ProblemTensors tensors(problem, Direction::kForward, gpu, *plan);
    tensors.fill_inputs(1);
    const auto bytes = [&] { return forward_bytes(*plan, problem, tensors); };
    const std::vector<char> first = bytes();
    for (int repeat = 0; repeat < 1000; ++repeat) ASSERT_EQ(bytes(), first) << "repeat " << repeat;
  }
}

// Every kind of dependence between key tiles: many, few or none at a row; one item or several for all query
// heads of a group.
TEST(Sm90, GivesTheSameGradientsEveryTimeIfDeterministic) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  struct Case {
    const char* name;
    int64_t block = 64, head_dim = 128;
  };
  for (const Case& c :
       {Case{"full"}, Case{"causal"}, Case{"causal_document"}, Case{"share_question"}, Case{"sliding_window"},
        Case{"global_sliding_window"}, Case{"block_causal_document"}, Case{"causal_blockwise"},
        Case{"uniform_block_sparse"}, Case{"uniform_block_sparse", 128}, Case{"variable_block_sparse", 256},
        Case{"causal", 64, 64}, Case{"causal_document", 64, 64}}) {
    SCOPED_TRACE(std::string(c.name) + ", block " + std::to_string(c.block) + ", head_dim " +
                 std::to_string(c.head_dim));
    PatternOptions options;
    options.seqlen = 2048;
    options.kv_heads = 2;
    if (std::string_view(c.name).ends_with("block_sparse")) options.values.set("block", c.block);
    Problem problem = problem_of(draw_mask(c.name, options).masks, 16, 2, c.head_dim, DType::kBF16);
    problem.deterministic = true;
    const std::unique_ptr<Plan> plan = sm90_kernel().plan(problem, gpu);
    ProblemTensors tensors(problem, Direction::kBackward, gpu, *plan);
    tensors.fill_inputs(1);
    tensors.forward(*plan);
    const std::vector<char> first = gradient_bytes(*plan, tensors);
    for (int repeat = 0; repeat < 1000; ++repeat)
      ASSERT_EQ(gradient_bytes(*plan, tensors), first) << "repeat " << repeat;
    EXPECT_EQ(verify(*plan, problem, Direction::kBackward, gpu, {}).failure, "");
  }
}

// Runs of full tiles that are long enough for items to begin where the other CTAs are.
TEST(Sm90, ComputesLongRunsOfFullTiles) {
  LONGSPAN_NEEDS_HOPPER();
  for (const int64_t rows : {12288, 13001})
    expect_right(problem_of({one_band(rows, 700, kBelow, kUnboundedAbove)}, 8, 2, 128, DType::kBF16));
}

TEST(Sm90, RefusesGradientsThatAreNotAligned) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  const Problem problem = problem_of({one_band(64, 64, kBelow, 0)}, 2, 2, 128, DType::kBF16);
  const std::unique_ptr<Plan> plan = checked_plan(sm90_kernel(), problem, gpu, Direction::kBackward);
  ProblemTensors tensors(problem, Direction::kBackward, gpu, *plan);
  tensors.fill_inputs(1);
  tensors.forward(*plan);
  const DeviceTensors& v = tensors.views();
  BackwardArgs args{v.q, v.k, v.v, v.o, v.dout, v.lse, v.dq, v.dk, v.dv, nullptr};
  args.dk.data = static_cast<char*>(args.dk.data) + 8;
  EXPECT_THAT([&] { plan->backward(args, Stream{}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("aligned to 16 bytes")));
}

TEST(Sm90, GivesReasonsForUnsupportedProblems) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  Problem problem = problem_of({one_band(64, 64, kBelow, 0)}, 2, 2, 128, DType::kBF16);
  EXPECT_EQ(sm90_kernel().supports(problem, Direction::kForward, cpu_device()).reason,
            "needs compute capability 9.0");
  problem.head_dim = 96;
  EXPECT_EQ(sm90_kernel().supports(problem, Direction::kForward, gpu).reason,
            "needs head_dim 64, 128 or 256, or 192 with head_dim_v 128");
  problem.head_dim = 128;
  problem.dtype = DType::kF32;
  EXPECT_EQ(sm90_kernel().supports(problem, Direction::kForward, gpu).reason, "needs bf16 or f16");
  problem.dtype = DType::kBF16;
  problem.scale = -1;
  EXPECT_EQ(sm90_kernel().supports(problem, Direction::kForward, gpu).reason, "needs a positive scale");
}

}  // namespace
}  // namespace longspan
