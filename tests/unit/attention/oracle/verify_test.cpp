// The oracles detect each planted kernel error, report its place, and accept correct kernels.
#include "attention/oracle/verify.h"

#include <string>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mask/patterns/patterns.h"
#include "unit/attention/plain_kernel.h"

namespace longspan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::shared_ptr<const HeadMasks> causal(int64_t n) {
  return std::make_shared<HeadMasks>(HeadMasks{Mask(n, n, {Band{{0, n}, {0, n}, kUnboundedBelow, 0}})});
}

// Different masks for two heads, with rows without keys (the first 10) and keys without rows (the last 10).
std::shared_ptr<const HeadMasks> different(int64_t n) {
  return std::make_shared<HeadMasks>(HeadMasks{Mask(n, n, {Band{{10, n}, {0, n - 10}, -20, 5}}),
                                               Mask(n, n, {Band{{10, n}, {0, n - 10}, -9, 0}})});
}

Problem make_problem(std::shared_ptr<const HeadMasks> masks, DType dtype = DType::kF32) {
  Problem problem;
  problem.tokens_q = masks->front().rows();
  problem.tokens_kv = masks->front().columns();
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.head_dim = 16;
  problem.dtype = dtype;
  problem.masks = std::move(masks);
  return problem;
}

VerifyReport verify_kernel(const PlainOptions& kernel, const Problem& problem, const VerifyOptions& options,
                           Direction direction = Direction::kBackward) {
  const auto plan = PlainKernel(kernel).plan(problem, cpu_device());
  return verify(*plan, problem, direction, cpu_device(), options);
}

VerifyOptions sampled(bool all = true) {
  VerifyOptions options;
  options.counting = false;
  options.samples.all = all;
  return options;
}

TEST(Verify, RightKernelsPassWhateverTheirRounding) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool fp32_output : {false, true}) {
      for (const float scale : {0.f, 0.7f}) {
        for (const auto& masks : {causal(150), different(150)}) {
          Problem problem = make_problem(masks, dtype);
          problem.fp32_output = fp32_output;
          problem.scale = scale;
          problem.deterministic = true;
          VerifyOptions options = sampled();
          options.counting = true;
          const VerifyReport report = verify_kernel({}, problem, options);
          EXPECT_TRUE(report.passed()) << name_of(dtype) << " " << scale << ": " << report.failure;
          EXPECT_EQ(report.counting, "pass");
          EXPECT_EQ(report.rows, 4 * 150);
          EXPECT_EQ(report.keys, 2 * 150);
          ASSERT_EQ(report.tensors.size(), 5u);
          for (const TensorAccuracy& tensor : report.tensors) {
            EXPECT_LE(tensor.error, tensor.tolerance) << tensor.tensor;
            EXPECT_GT(tensor.error, 0) << tensor.tensor;
            EXPECT_GT(tensor.relative, 0) << tensor.tensor;
          }
        }
      }
    }
  }
}

// Scores in the thousands, whose f32 errors exp() amplifies.
TEST(Verify, RightKernelsPassAtLargeScales) {
  for (const float scale : {10.f, -30.f, 100.f, 1000.f}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const auto& masks : {causal(150), different(150)}) {
        Problem problem = make_problem(masks, dtype);
        problem.scale = scale;
        const VerifyReport report = verify_kernel({}, problem, sampled());
        EXPECT_TRUE(report.passed()) << name_of(dtype) << " " << scale << ": " << report.failure;
        problem.fp32_output = true;
        const VerifyReport wide = verify_kernel({}, problem, sampled());
        EXPECT_TRUE(wide.passed()) << name_of(dtype) << " " << scale << ": " << wide.failure;
      }
    }
  }
}

TEST(Verify, WrongKernelsAreCaughtAtLargeScales) {
  for (const float scale : {10.f, 100.f, 1000.f}) {
    for (const Fault fault :
         {Fault::kWrongScale, Fault::kRoundedScores, Fault::kNoRescale, Fault::kSwappedHead,
          Fault::kMaskIgnored, Fault::kTileDropped, Fault::kLseOfBase2, Fault::kNan, Fault::kNoDelta,
          Fault::kDkUnscaled, Fault::kGroupNotSummed, Fault::kDkSwappedHead}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        Problem problem = make_problem(causal(100), dtype);
        problem.scale = scale;
        const PlainOptions kernel{.fault = fault, .head = 2, .row = 70, .key = 65};
        EXPECT_FALSE(verify_kernel(kernel, problem, sampled()).passed())
            << "fault " << static_cast<int>(fault) << ", " << name_of(dtype) << ", scale " << scale;
      }
    }
  }
}

// Where errors of the scores leave no digit of the weights, any output would pass.
TEST(Verify, ScalesBeyondF32AreRefused) {
  Problem problem = make_problem(causal(100));
  problem.scale = 1e6f;
  try {
    verify_kernel({}, problem, sampled());
    ADD_FAILURE() << "verified";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("scale of 1e+06"));
    EXPECT_THAT(error.what(), HasSubstr("choose a smaller scale"));
  }
}

TEST(Verify, EveryPatternPasses) {
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = 160;
    options.kv_heads = 2;
    options.lengths = "uniform:1:40";
    options.values.set("window", TokenPair{20, {}});
    if (pattern.name == "sliding_window") options.values.set("window", TokenPair{20, 30});
    if (pattern.name.find("block") != std::string_view::npos) options.values.set("block", 32);
    if (pattern.name == "variable_block_sparse") options.values.set("block_min", 8);
    const DrawnMask drawn = draw_mask(pattern.name, options);
    const Problem problem = make_problem(std::make_shared<HeadMasks>(drawn.masks), DType::kBF16);
    const VerifyReport report = verify_kernel({}, problem, VerifyOptions{});
    EXPECT_TRUE(report.passed()) << pattern.name << ": " << report.failure;
  }
}

TEST(Verify, GradientsOfLse) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& masks : {causal(150), different(150)}) {
      Problem problem = make_problem(masks, dtype);
      problem.lse_gradient = true;
      VerifyOptions options = sampled();
      options.counting = true;
      EXPECT_EQ(verify_kernel({}, problem, options).failure, "");
      const VerifyReport wrong = verify_kernel({.fault = Fault::kNoLseGradient}, problem, options);
      EXPECT_THAT(wrong.backward_failure, HasSubstr("dq"));
      EXPECT_EQ(wrong.forward_failure, "");
    }
  }
}

struct Planted {
  Fault fault;
  const char* tensor;  // reported by the sampled oracle
  const char* place;   // part of the message
};

std::string name_of_planted(const testing::TestParamInfo<Planted>& info) {
  return "Fault" + std::to_string(static_cast<int>(info.param.fault));
}

class PlantedFault : public testing::TestWithParam<Planted> {};

// The fault is at head 2, row 70 and, for keys, at key 75 (or 95, which no row sees), in both kinds of masks.
TEST_P(PlantedFault, IsCaughtAndNamed) {
  const Planted& planted = GetParam();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& masks : {causal(100), different(100)}) {
      const bool needs_different =
          planted.fault == Fault::kHeadMaskSwapped || planted.fault == Fault::kEmptyRowNotZero ||
          planted.fault == Fault::kEmptyRowLseZero || planted.fault == Fault::kUnseenKeyNotZero;
      if (needs_different && masks->size() == 1) continue;
      PlainOptions kernel{.fault = planted.fault, .head = 2, .row = 70, .key = 65};
      if (planted.fault == Fault::kUnseenKeyNotZero) kernel.key = 95;
      const Problem problem = make_problem(masks, dtype);
      const VerifyReport report = verify_kernel(kernel, problem, sampled());
      EXPECT_FALSE(report.passed()) << name_of(dtype);
      EXPECT_THAT(report.failure, HasSubstr(planted.tensor));
      EXPECT_THAT(report.failure, HasSubstr(planted.place));
      EXPECT_THAT(report.failure, Not(HasSubstr("\n")));
      const bool gradient = planted.tensor[0] == 'd';
      EXPECT_EQ(report.forward_failure.empty(), gradient) << report.forward_failure;
      if (gradient) EXPECT_THAT(report.backward_failure, Not(IsEmpty()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, PlantedFault,
    testing::Values(
        Planted{Fault::kKeyMissing, "o", "head 2, row 70"},
        Planted{Fault::kKeyTooMany, "o", "head 2, row 70"},
        Planted{Fault::kRowShifted, "o", "head 2, row 70"}, Planted{Fault::kTileDropped, "o", "head 2, row"},
        Planted{Fault::kMaskIgnored, "", "row"}, Planted{Fault::kHeadMaskSwapped, "o", "row"},
        Planted{Fault::kWrongScale, "o", "row"}, Planted{Fault::kRoundedScores, "", "row"},
        Planted{Fault::kNoRescale, "o", "row"}, Planted{Fault::kSwappedHead, "o", "row"},
        Planted{Fault::kLseOff, "lse", "head 2, row 70"}, Planted{Fault::kLseOfBase2, "lse", "row"},
        Planted{Fault::kNan, "o", "head 2, row 70, element 1 is nan"},
        Planted{Fault::kInfinite, "o", "head 2, row 70, element 1 is inf"},
        Planted{Fault::kUnwrittenRow, "o", "head 2, row 70, element 0 is nan"},
        Planted{Fault::kUnwrittenLse, "lse", "head 2, row 70 is nan"},
        Planted{Fault::kEmptyRowNotZero, "o", "row 0, element 0 is 1, though the row sees no key"},
        Planted{Fault::kEmptyRowLseZero, "lse", "row 0 is 0, though the row sees no key"},
        Planted{Fault::kOneElementOff, "o", "head 2, row 70, element 1"},
        Planted{Fault::kUsesWorkspace, "o", "is nan"}),
    name_of_planted);

INSTANTIATE_TEST_SUITE_P(
    GradientFaults, PlantedFault,
    testing::Values(Planted{Fault::kDqKeyMissing, "dq", "head 2, row 70"},
                    Planted{Fault::kDkRowMissing, "dk", "KV head 1, key"},
                    Planted{Fault::kDvRowMissing, "dv", "KV head 1, key"},
                    Planted{Fault::kNoDelta, "dq", "row"}, Planted{Fault::kDkUnscaled, "dk", "key"},
                    Planted{Fault::kGroupNotSummed, "dk", "key"}, Planted{Fault::kDkSwappedHead, "dk", "key"},
                    Planted{Fault::kNanInDk, "dk", "KV head 1, key 65, element 2 is nan"},
                    Planted{Fault::kUnwrittenDv, "dv", "KV head 1, key 65, element 0 is nan"},
                    Planted{Fault::kUnwrittenDq, "dq", "head 2, row 70, element 0 is nan"},
                    Planted{Fault::kUnseenKeyNotZero, "dk",
                            "KV head 1, key 95, element 0 is 1, though the key is seen by no row"},
                    Planted{Fault::kAccumulatesIntoOutput, "dq", "is nan"}),
    name_of_planted);

// One missing key among thousands: bf16 rounding hides it in o; lse shows it.
TEST(Verify, OneMissingKeyInALongRowIsCaught) {
  constexpr int64_t kRows = 30, kKeys = 20000;
  Problem problem =
      make_problem(std::make_shared<HeadMasks>(HeadMasks{Mask(kRows, kKeys, {Band{{0, kRows}, {0, kKeys}}})}),
                   DType::kBF16);
  problem.heads_q = problem.heads_kv = 1;
  for (const int64_t row : {0, 7, 13}) {
    const PlainOptions kernel{.fault = Fault::kKeyMissing, .row = row};
    const VerifyReport report = verify_kernel(kernel, problem, sampled(), Direction::kForward);
    EXPECT_LT(report.tensors[0].error, report.tensors[0].tolerance);
    EXPECT_THAT(report.failure, HasSubstr("lse: error"));
    EXPECT_THAT(report.failure, HasSubstr(fmt::format("head 0, row {}:", row)));
  }
  EXPECT_EQ(verify_kernel({}, problem, sampled(), Direction::kForward).failure, "");
}

// 4928 keys in 77 tiles of 64, largest score 4.5: the tolerance of a kernel whose sum drifts, and of one
// whose sum does not.
TEST(Verify, OnlyAKernelThatSaysSoMayLetItsSumDrift) {
  Problem problem = make_problem(causal(1));
  problem.heads_q = problem.heads_kv = 1;
  ForwardReference reference;
  reference.lse = {8.9};
  reference.largest = {4.5};
  reference.lse_scores = {0};
  reference.o.terms = {4928};
  const auto failure = [&](double error, int64_t drift_keys) {
    const auto lse = static_cast<float>(8.9 + error);
    return compare_lse(problem, &lse, reference, {{0}}, drift_keys).failure;
  };
  EXPECT_THAT(failure(3e-6, 0), IsEmpty());
  EXPECT_THAT(failure(6e-6, 0), HasSubstr("lse: error"));
  EXPECT_THAT(failure(6e-6, 64), IsEmpty());
  EXPECT_THAT(failure(2.3e-5, 64), IsEmpty());
  EXPECT_THAT(failure(2.8e-5, 64), HasSubstr("lse: error"));
  EXPECT_THAT(failure(6e-6, 1024), HasSubstr("lse: error"));
}

TEST(Verify, ARunThatDiffersIsNotDeterministic) {
  Problem problem = make_problem(causal(40));
  const PlainOptions flaky{.fault = Fault::kFlaky};
  EXPECT_TRUE(verify_kernel(flaky, problem, sampled()).passed());
  problem.deterministic = true;
  EXPECT_THAT(verify_kernel(flaky, problem, sampled()).failure,
              HasSubstr("o: two runs differ, though a deterministic kernel was asked for"));
}

TEST(Verify, TwoRunsDifferByOneBitOfAnyOutput) {
  std::vector<float> memory(5, 1.0f);
  const auto view = [&](size_t i) { return TensorView::contiguous(&memory[i], DType::kF32, 1, 1, 1); };
  DeviceTensors tensors;
  tensors.o = view(0);
  tensors.lse = &memory[1];
  tensors.dq = view(2), tensors.dk = view(3), tensors.dv = view(4);
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    EXPECT_EQ(difference_of_runs(direction, tensors, [] {}), "");
  }
  const char* names[] = {"o: ", "lse: ", "dq: ", "dk: ", "dv: "};
  for (size_t i = 0; i < memory.size(); ++i) {
    const Direction direction = i < 2 ? Direction::kForward : Direction::kBackward;
    EXPECT_THAT(difference_of_runs(direction, tensors, [&] { memory[i] = std::nextafter(memory[i], 2.0f); }),
                testing::StartsWith(names[i]));
  }
}

TEST(Verify, TheForwardPassAloneIsChecked) {
  const Problem problem = make_problem(causal(40));
  const VerifyReport report =
      verify_kernel({.fault = Fault::kNoDelta}, problem, VerifyOptions{}, Direction::kForward);
  EXPECT_TRUE(report.passed()) << report.failure;
  EXPECT_EQ(report.tensors.size(), 2u);
  EXPECT_EQ(report.keys, 0);
}

TEST(Verify, ABadProblemIsRefused) {
  Problem problem = make_problem(causal(40));
  const auto plan = PlainKernel().plan(problem, cpu_device());
  problem.heads_kv = 3;
  EXPECT_THROW(verify(*plan, problem, Direction::kForward, cpu_device(), {}), Error);
}

}  // namespace
}  // namespace longspan
