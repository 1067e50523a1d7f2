// Both passes of portable against the fp64 oracle on a GPU: every instance at odd lengths, every layout of
// heads, partial outputs, equal bits. The same kernels run in the emulation without a GPU
// (tests/unit/kernels/portable).
#include "kernels/portable/portable.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "edges.h"
#include "hopper.h"
#include "mask/patterns/patterns.h"
#include "output_bytes.h"

// Skips the test, with the reason, where the kernel does not run.
#define LONGSPAN_NEEDS_AMPERE() \
  LONGSPAN_NEEDS_GPU();         \
  if (first_gpu().capability < 80) GTEST_SKIP() << "needs compute capability 8.0 or later"

namespace longspan {
namespace {

constexpr int64_t kBelow = kUnboundedBelow;
constexpr std::initializer_list<int64_t> kHeadDims = {8, 40, 64, 72, 96, 128, 136, 192, 256};

void expect_right(const Problem& problem) {
  expect_right(portable_kernel(), problem);
}

HeadMasks drawn(const Pattern& pattern, int64_t seqlen, int64_t heads_kv) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = heads_kv;
  if (pattern.suit_length != nullptr) pattern.suit_length(options);
  return draw_mask(pattern.name, options).masks;
}

TEST(Portable, ComputesEveryPatternAtEveryHeadDim) {
  LONGSPAN_NEEDS_AMPERE();
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(pattern.name);
    for (const int64_t head_dim : kHeadDims)
      expect_right(problem_of(drawn(pattern, 2048, 2), 8, 2, head_dim,
                              head_dim % 16 == 8 ? DType::kF16 : DType::kBF16));
  }
}

TEST(Portable, ComputesLengthsThatDoNotDivideItsTiles) {
  LONGSPAN_NEEDS_AMPERE();
  expect_right_at_lengths(portable_kernel(), {1, 2, 7, 15, 31, 33, 63, 64, 65, 127, 129, 300, 1000},
                          kHeadDims);
}

TEST(Portable, ComputesQueriesAndKeysOfDifferentLengths) {
  LONGSPAN_NEEDS_AMPERE();
  expect_right_where_lengths_differ(portable_kernel());
}

TEST(Portable, ComputesEveryLayoutOfHeads) {
  LONGSPAN_NEEDS_AMPERE();
  expect_right_with_heads(portable_kernel(), {64, 72, 128, 256});
}

TEST(Portable, GivesZeroToRowsWithoutKeys) {
  LONGSPAN_NEEDS_AMPERE();
  expect_zero_for_rows_without_keys(portable_kernel());
}

TEST(Portable, SumsLongRowsBesideRowsThatHaveSeenNoKey) {
  LONGSPAN_NEEDS_AMPERE();
  expect_no_drift_on_long_rows(portable_kernel());
}

TEST(Portable, TakesTheGradientOfLse) {
  LONGSPAN_NEEDS_AMPERE();
  Problem problem = problem_of({one_band(700, 700, -300, 0)}, 4, 2, 128, DType::kBF16);
  problem.lse_gradient = true;
  expect_right(problem);
}

TEST(Portable, GivesTheSameBitsEveryTimeIfDeterministic) {
  LONGSPAN_NEEDS_AMPERE();
  const Device gpu = first_gpu();
  for (const char* name : {"full", "causal", "causal_document", "share_question", "sliding_window",
                           "global_sliding_window", "uniform_block_sparse"}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      SCOPED_TRACE(fmt::format("{}, head_dim {}", name, head_dim));
      Problem problem = problem_of(drawn(pattern_from_name(name), 2048, 2), 16, 2, head_dim, DType::kBF16);
      problem.deterministic = true;
      const std::unique_ptr<Plan> plan = portable_kernel().plan(problem, gpu);
      ProblemTensors tensors(problem, Direction::kBackward, gpu, *plan);
      tensors.fill_inputs(1);
      tensors.forward(*plan);
      const std::vector<char> first = gradient_bytes(*plan, tensors);
      for (int repeat = 0; repeat < 200; ++repeat)
        ASSERT_EQ(gradient_bytes(*plan, tensors), first) << "repeat " << repeat;
      EXPECT_EQ(verify(*plan, problem, Direction::kBackward, gpu, {}).failure, "");
    }
  }
}

TEST(PortableSupport, GivesReasons) {
  const Problem problem = problem_of({one_band(64, 64, kBelow, 0)}, 2, 2, 128, DType::kBF16);
  Device gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.capability = 75;
  gpu.index = 1 << 20;  // no device that a driver might know
  const auto reason = [&](const Device& device) {
    return portable_kernel().supports(problem, Direction::kForward, device).reason;
  };
  EXPECT_EQ(reason(cpu_device()), "needs compute capability 8.0 or later");
  EXPECT_EQ(reason(gpu), "needs compute capability 8.0 or later");
  gpu.capability = 86;
  EXPECT_EQ(reason(gpu), "");
}

}  // namespace
}  // namespace longspan
