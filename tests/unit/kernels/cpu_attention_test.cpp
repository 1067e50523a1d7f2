// The CPU kernels against an f64 brute force and against each other.
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "attention/oracle/verify.h"
#include "attention_case.h"
#include "base/parallel.h"
#include "kernels/cpu/flash.h"
#include "kernels/cpu/naive.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

struct NamedMask {
  std::string name;
  Mask mask;
};

// Masks by the shape of their visible pairs, not by pattern; the length may be any number.
std::vector<NamedMask> masks_of(int64_t rows, int64_t columns) {
  const Range q{0, rows}, k{0, columns};
  const int64_t middle = rows / 2, third = columns / 3;
  std::vector<Band> stripes;  // many short intervals in each row: tiles with many layers
  for (int64_t at = 0; at < columns; at += 7) stripes.push_back({q, {at, std::min(at + 3, columns)}});
  return {
      {"full", Mask(rows, columns, {{q, k}})},
      {"causal", Mask(rows, columns, {{q, k, kUnboundedBelow, 0}})},
      {"inverse causal", Mask(rows, columns, {{q, k, 0, kUnboundedAbove}})},
      {"window", Mask(rows, columns, {{q, k, -37, 5}})},
      {"two windows", Mask(rows, columns, {{q, k, -90, -70}, {q, k, -20, 0}})},
      {"documents",
       Mask(rows, columns, {{{0, middle}, {0, third}}, {{middle, rows}, {third, columns}, -100, 50}})},
      {"rows and keys without any", Mask(rows, columns, {{{rows / 3, middle}, {third, third * 2}}})},
      {"stripes", Mask(rows, columns, stripes)},
      {"nothing", Mask(rows, columns, std::vector<Band>{})},
  };
}

constexpr double kF32Error = 2e-5, kF32GradientError = 4e-5;

void expect_near(const AttentionOutputs& got, const AttentionOutputs& truth, double error,
                 double gradient_error, const std::string& what) {
  EXPECT_LT(relative_error(got.o, truth.o), error) << what;
  EXPECT_LT(relative_error(got.lse, truth.lse), error) << what;
  EXPECT_LT(relative_error(got.dq, truth.dq), gradient_error) << what;
  EXPECT_LT(relative_error(got.dk, truth.dk), gradient_error) << what;
  EXPECT_LT(relative_error(got.dv, truth.dv), gradient_error) << what;
}

std::string describe(const Problem& problem, const std::string& mask) {
  return fmt::format("{} x {}, heads {}:{}, head_dim {}, {}, {}", problem.tokens_q, problem.tokens_kv,
                     problem.heads_q, problem.heads_kv, problem.head_dim, name_of(problem.dtype), mask);
}

void check_both(const Problem& problem, const std::string& mask, double error = kF32Error,
                double gradient_error = kF32GradientError) {
  const AttentionCase c(problem);
  const AttentionOutputs truth = c.brute_force();
  expect_near(c.run(cpu_naive()), truth, error, gradient_error, "cpu-naive, " + describe(problem, mask));
  expect_near(c.run(cpu_flash()), truth, error, gradient_error, "cpu-flash, " + describe(problem, mask));
}

class CpuAttention : public testing::Test {
 protected:
  void TearDown() override { set_thread_count(before_); }
  const int before_ = thread_count();
};

TEST_F(CpuAttention, OddLengthsOfEveryMask) {
  for (int64_t tokens : {1, 2, 63, 64, 65, 127, 129}) {
    for (const NamedMask& named : masks_of(tokens, tokens)) {
      check_both(make_problem(named.mask, 2, 2, 8), named.name);
      check_both(make_problem(named.mask, 4, 2, 40), named.name);
    }
  }
}

TEST_F(CpuAttention, LongerThanManyTiles) {
  for (const NamedMask& named : masks_of(1000, 1000))
    check_both(make_problem(named.mask, 2, 1, 16), named.name);
}

TEST_F(CpuAttention, MoreKeysThanRowsAndMoreRowsThanKeys) {
  for (const auto& [rows, columns] : {std::pair{70, 700}, {700, 70}, {1, 300}, {300, 1}}) {
    for (const NamedMask& named : masks_of(rows, columns))

      // With one key, hundreds of gradients cancel to zero.
      check_both(make_problem(named.mask, 3, 1, 24), named.name, kF32Error, 2e-4);
  }
}

TEST_F(CpuAttention, HeadDimsAndGroups) {
  const Mask mask(140, 140, {{{0, 140}, {0, 140}, -100, 0}});
  for (int64_t head_dim : {8, 40, 64, 128, 256}) {
    check_both(make_problem(mask, 1, 1, head_dim), "window");
    check_both(make_problem(mask, 4, 2, head_dim), "window");
  }
  for (const auto& [heads_q, heads_kv] : {std::pair{3, 3}, {6, 1}, {14, 2}, {17, 1}, {32, 1}}) {
    check_both(make_problem(mask, heads_q, heads_kv, 24), "window");
  }
}

TEST_F(CpuAttention, NarrowTypes) {
  for (const NamedMask& named : masks_of(150, 150)) {
    for (bool fp32_output : {false, true}) {
      Problem problem = make_problem(named.mask, 4, 2, 64, DType::kBF16);
      problem.fp32_output = fp32_output;
      // With f32 outputs only the inputs are rounded to bf16, and the truth uses the same inputs.
      check_both(problem, named.name, fp32_output ? kF32Error : 5e-3, fp32_output ? kF32GradientError : 1e-2);
      problem.dtype = DType::kF16;
      check_both(problem, named.name, fp32_output ? kF32Error : 7e-4, fp32_output ? kF32GradientError : 2e-3);
    }
  }
}

TEST_F(CpuAttention, MasksThatDifferByKvHead) {
  Problem problem = make_problem(Mask(), 6, 3, 32);
  problem.tokens_q = problem.tokens_kv = 333;
  const std::vector<NamedMask> masks = masks_of(333, 333);
  problem.masks = std::make_shared<HeadMasks>(HeadMasks{masks[3].mask, masks[6].mask, masks[1].mask});
  check_both(problem, "one mask per KV head");
}

TEST_F(CpuAttention, ScaleIsAParameter) {
  const Mask mask(130, 130, {{{0, 130}, {0, 130}, kUnboundedBelow, 0}});
  for (float scale : {0.01f, 0.5f, -0.3f}) {
    Problem problem = make_problem(mask, 2, 1, 16);
    problem.scale = scale;
    check_both(problem, fmt::format("scale {}", scale));
  }
}

std::vector<float> slopes_of(int64_t heads) {
  std::vector<float> slopes;
  for (int64_t h = 0; h < heads; ++h) slopes.push_back(0.3f / static_cast<float>(1 + h));
  return slopes;
}

TEST_F(CpuAttention, HeadDimOfValuesIsItsOwn) {
  for (const NamedMask& named : masks_of(150, 150)) {
    for (const auto& [dim, dim_v] : {std::pair{24, 8}, {8, 40}, {192, 128}}) {
      Problem problem = make_problem(named.mask, 4, 2, dim);
      problem.head_dim_v = dim_v;
      problem.lse_gradient = true;
      check_both(problem, fmt::format("{}, head_dim_v {}", named.name, dim_v));
    }
  }
}

TEST_F(CpuAttention, ScoresAreCapped) {
  for (const NamedMask& named : masks_of(150, 200)) {
    for (const float softcap : {0.5f, 4.0f, 50.0f}) {
      Problem problem = make_problem(named.mask, 4, 2, 24);
      problem.softcap = softcap;
      problem.scale = 0.7f;  // beyond the smaller caps
      check_both(problem, fmt::format("{}, softcap {}", named.name, softcap), kF32Error, 2e-4);
    }
  }
}

TEST_F(CpuAttention, AlibiLowersDistantScores) {
  for (const auto& [rows, keys] : {std::pair{150, 150}, {70, 300}, {300, 70}}) {
    for (const NamedMask& named : masks_of(rows, keys)) {
      Problem problem = make_problem(named.mask, 6, 2, 16);
      problem.alibi_slopes = slopes_of(6);
      check_both(problem, named.name + ", ALiBi", kF32Error, 2e-4);
      problem.softcap = 5;
      problem.head_dim_v = 24;
      problem.lse_gradient = true;
      check_both(problem, named.name + ", ALiBi, softcap, head_dim_v 24", kF32Error, 2e-4);
    }
  }
}

TEST_F(CpuAttention, FeaturesInNarrowTypesPassTheOracle) {
  for (const NamedMask& named : masks_of(333, 333)) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const float softcap : {0.0f, 20.0f}) {
        Problem problem = make_problem(named.mask, 6, 3, 40, dtype);
        problem.head_dim_v = 64;
        problem.softcap = softcap;
        if (softcap == 0) problem.alibi_slopes = slopes_of(6);
        for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
          const auto plan = kernel->plan(problem, cpu_device());
          const VerifyReport report = verify(*plan, problem, Direction::kBackward, cpu_device(), {});
          EXPECT_EQ(report.failure, "") << kernel->name() << ", " << describe(problem, named.name);
          EXPECT_EQ(report.counting, softcap == 0 ? "" : "pass");
        }
      }
    }
  }
}

TEST_F(CpuAttention, SinksJoinEveryRow) {
  for (const NamedMask& named : masks_of(150, 200)) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
        Problem problem = make_problem(named.mask, 6, 3, 40, dtype);
        problem.lse_gradient = true;
        const auto plan = kernel->plan(problem, cpu_device());
        problem.sinks = drawn_sinks(6, 1);
        problem.sinks[0] = 80, problem.sinks[1] = -80;  // nearly all of a row, and nearly nothing
        const VerifyReport report = verify(*plan, problem, Direction::kBackward, cpu_device(), {});
        EXPECT_EQ(report.failure, "") << kernel->name() << ", " << describe(problem, named.name);
        EXPECT_EQ(report.tensors.size(), 6u);
      }
    }
  }
}

TEST_F(CpuAttention, EveryPattern) {
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = 1024;  // block_causal_document needs a multiple of 1024
    options.kv_heads = 2;
    options.lengths = "uniform:20:400";
    if (pattern.name == "sliding_window_causal") options.values.set("window", TokenPair{100, {}});
    if (pattern.name == "sliding_window") options.values.set("window", TokenPair{100, 30});
    if (pattern.name == "uniform_block_sparse") options.values.set("block", 64);
    if (pattern.name == "variable_block_sparse") options.values.set("block", 128).set("block_min", 40);
    Problem problem = make_problem(Mask(), 4, 2, 8);
    problem.tokens_q = problem.tokens_kv = options.seqlen;
    problem.masks = std::make_shared<HeadMasks>(draw_mask(pattern.name, options).masks);
    check_both(problem, std::string(pattern.name));
  }
}

TEST_F(CpuAttention, BothLibrariesOfProducts) {
  for (const NamedMask& named : masks_of(300, 300)) {
    const AttentionCase c(make_problem(named.mask, 4, 2, 40));
    const AttentionOutputs truth = c.brute_force();
    for (GemmLibrary library : {GemmLibrary::kXsmm, GemmLibrary::kBlas}) {
      if (!available(library)) continue;
      expect_near(c.run(*plan_cpu_flash(c.problem(), library)), truth, kF32Error, kF32GradientError,
                  named.name);
    }
  }
}

TEST_F(CpuAttention, SameBitsOnAnyNumberOfThreads) {
  for (const auto& [tokens, heads_q, heads_kv] : {std::tuple{700, 1, 1}, {400, 4, 2}, {150, 34, 2}}) {
    for (const NamedMask& named : masks_of(tokens, tokens)) {
      const AttentionCase c(make_problem(named.mask, heads_q, heads_kv, 8));
      for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
        if (kernel == &cpu_naive() && heads_q > 4) continue;
        set_thread_count(1);
        const AttentionOutputs one = c.run(*kernel);
        for (int threads : {2, 3, 7}) {
          set_thread_count(threads);
          EXPECT_TRUE(c.run(*kernel).same_bits(one))
              << kernel->name() << " on " << threads << ", " << describe(c.problem(), named.name);
        }
      }
    }
  }
}

TEST_F(CpuAttention, APlanServesManyCalls) {
  const Mask mask(300, 300, {{{0, 300}, {0, 300}, kUnboundedBelow, 0}});
  const AttentionCase a(make_problem(mask, 2, 1, 32)), b(a.problem(), 1, 2);
  const std::unique_ptr<Plan> plan = cpu_flash().plan(a.problem(), cpu_device());
  const AttentionOutputs first = a.run(*plan);
  EXPECT_FALSE(b.run(*plan).same_bits(first));
  EXPECT_TRUE(a.run(*plan).same_bits(first));
}

TEST_F(CpuAttention, APlanServesCallsOfSeveralThreads) {
  constexpr int kThreads = 4;
  const Mask mask(300, 300, {{{0, 300}, {0, 300}, kUnboundedBelow, 0}});
  const Problem problem = make_problem(mask, 2, 1, 32);
  for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
    const std::unique_ptr<Plan> plan = kernel->plan(problem, cpu_device());
    std::vector<int> wrong(kThreads, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const AttentionCase c(problem, 1, static_cast<uint64_t>(t));
        const AttentionOutputs right = c.run(*kernel);
        for (int i = 0; i < 20; ++i) wrong[static_cast<size_t>(t)] += !c.run(*plan).same_bits(right);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(kThreads, 0)) << kernel->name();
  }
}

TEST_F(CpuAttention, GradientOfLse) {
  for (const NamedMask& named : masks_of(150, 150)) {
    Problem problem = make_problem(named.mask, 4, 2, 24);
    problem.lse_gradient = true;
    check_both(problem, named.name + ", with a gradient of lse");
  }
}

TEST_F(CpuAttention, RowsWithoutKeysAndKeysWithoutRowsAreZero) {
  const Mask mask(300, 400, {{{70, 200}, {140, 333}, kUnboundedBelow, 100}});
  for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
    const AttentionCase c(make_problem(mask, 2, 1, 16));
    const AttentionOutputs out = c.run(*kernel);
    int rows = 0, keys = 0;
    for (int64_t i = 0; i < 300; ++i) {
      if (mask.visible_count(i) > 0) continue;
      ++rows;
      for (int64_t h = 0; h < 2; ++h) {
        EXPECT_EQ(out.lse[h * 300 + i], -std::numeric_limits<float>::infinity());
        for (int64_t d = 0; d < 16; ++d) {
          EXPECT_EQ(out.o[(i * 2 + h) * 16 + d], 0);
          EXPECT_EQ(out.dq[(i * 2 + h) * 16 + d], 0);
        }
      }
    }
    const std::vector<int64_t> seen = mask.transposed().visible_counts();
    for (int64_t j = 0; j < 400; ++j) {
      if (seen[j] > 0) continue;
      ++keys;
      for (int64_t d = 0; d < 16; ++d) {
        EXPECT_EQ(out.dk[j * 16 + d], 0);
        EXPECT_EQ(out.dv[j * 16 + d], 0);
      }
    }
    EXPECT_GT(rows, 100) << kernel->name();
    EXPECT_GT(keys, 100) << kernel->name();
  }
}

// With scores of thousands, softmax nearly selects one key. f32 is accurate to about 1e-4 there.
TEST_F(CpuAttention, LargeScores) {
  for (const NamedMask& named : masks_of(200, 200)) {
    const AttentionCase c(make_problem(named.mask, 2, 1, 32), 30);
    const AttentionOutputs truth = c.brute_force();
    for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
      const AttentionOutputs got = c.run(*kernel);
      expect_near(got, truth, 2e-3, 2e-2, std::string(kernel->name()) + ", large scores, " + named.name);
    }
  }
}

// Scores outside the range of f32 in both directions must not become NaN.
// As accurate as f32 scores allow, by the oracle's derivation of what that is.
TEST_F(CpuAttention, LargeScalesAreVerified) {
  for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const float scale : {1.0f, 100.0f, -1000.0f}) {
        Problem problem;
        problem.tokens_q = problem.tokens_kv = 300;
        problem.heads_q = 4;
        problem.heads_kv = 2;
        problem.head_dim = 64;
        problem.dtype = dtype;
        problem.scale = scale;
        problem.set_mask(Mask::window(300, 200, 3));
        const auto plan = kernel->plan(problem, cpu_device());
        const VerifyReport report = verify(*plan, problem, Direction::kBackward, cpu_device(), {});
        EXPECT_EQ(report.failure, "") << kernel->name() << " " << name_of(dtype) << " " << scale;
      }
    }
  }
}

TEST_F(CpuAttention, NoNanOfScoresBeyondTheRange) {
  for (const NamedMask& named : masks_of(200, 200)) {
    for (float magnitude : {1e15f, 1e18f, 1e19f}) {
      Problem problem = make_problem(named.mask, 2, 1, 32);
      problem.scale = 100;
      const AttentionCase c(problem, magnitude);
      for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
        const AttentionOutputs got = c.run(*kernel);
        for (float x : got.o) ASSERT_TRUE(std::isfinite(x)) << kernel->name() << ", " << named.name;
        for (float x : got.lse) ASSERT_FALSE(std::isnan(x)) << kernel->name() << ", " << named.name;
      }
    }
  }
}

TEST_F(CpuAttention, NanStaysWhereItIsSeen) {
  const Mask mask(300, 300, {{{0, 300}, {0, 300}}});
  const AttentionCase c(make_problem(mask, 2, 1, 16));
  c.q().row<float>(123, 1)[5] = std::numeric_limits<float>::quiet_NaN();
  for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
    const AttentionOutputs got = c.run(*kernel);
    for (int64_t i = 0; i < 300; ++i) {
      for (int64_t h = 0; h < 2; ++h) {
        const bool expected = i == 123 && h == 1;
        EXPECT_EQ(std::isnan(got.o[(i * 2 + h) * 16]), expected)
            << kernel->name() << " row " << i << ", head " << h;
        EXPECT_EQ(std::isnan(got.lse[h * 300 + i]), expected)
            << kernel->name() << " row " << i << ", head " << h;
      }
    }
  }
}

// With q = 0, each row's lse is the logarithm of its number of visible keys.
TEST_F(CpuAttention, CountsKeysExactly) {
  for (const NamedMask& named : masks_of(500, 500)) {
    const AttentionCase c(make_problem(named.mask, 2, 1, 8));
    std::fill_n(static_cast<float*>(c.q().data), c.q().elements(), 0.0f);
    for (const Kernel* kernel : {&cpu_naive(), &cpu_flash()}) {
      const AttentionOutputs got = c.run(*kernel);
      for (int64_t i = 0; i < 500; ++i) {
        const int64_t count = named.mask.visible_count(i);
        const float truth = static_cast<float>(std::log(static_cast<double>(count)));
        EXPECT_FLOAT_EQ(got.lse[i], truth) << kernel->name() << ", " << named.name << ", row " << i;
      }
    }
  }
}

TEST_F(CpuAttention, UnsupportedIsAReason) {
  const Mask mask(16, 16, {{{0, 16}, {0, 16}}});
  const auto reason = [&](int64_t head_dim, DType dtype) {
    return cpu_flash()
        .supports(make_problem(mask, 1, 1, head_dim, dtype), Direction::kForward, cpu_device())
        .reason;
  };
  EXPECT_EQ(reason(128, DType::kF32), "");
  EXPECT_EQ(reason(256, DType::kBF16), "");
  EXPECT_EQ(reason(264, DType::kF32), "needs head_dim a multiple of 8 up to 256, not 264");
  EXPECT_EQ(reason(12, DType::kF32), "needs head_dim a multiple of 8 up to 256, not 12");
  EXPECT_EQ(reason(128, DType::kF64), "needs dtype f32, bf16 or f16");
  const int64_t many = 1 << 20;
  const Support support = cpu_naive().supports(
      make_problem(Mask(many, many, {{{0, many}, {0, many}}}), 1, 1, 128), Direction::kForward, cpu_device());
  EXPECT_NE(support.reason.find("4096.0 GiB"), std::string::npos) << support.reason;
}

// A million tokens: workspace and plan grow with S, not S^2.
TEST_F(CpuAttention, MemoryIsLinear) {
  const int64_t many = 1 << 20;
  const Problem problem = make_problem(Mask(many, many, {{{0, many}, {0, many}, -1024, 0}}), 1, 1, 128);
  const std::unique_ptr<Plan> plan = cpu_flash().plan(problem, cpu_device());
  const size_t tensor = static_cast<size_t>(many) * 128 * sizeof(float);
  const size_t scratch = static_cast<size_t>(thread_count()) * (4 << 20);
  EXPECT_LE(plan->workspace_bytes(Direction::kForward), 2 * tensor + scratch);
  EXPECT_LE(plan->workspace_bytes(Direction::kBackward), 5 * tensor + scratch);
  EXPECT_LE(plan->plan_bytes(), 8u << 20);
}

}  // namespace
}  // namespace longspan
