// The portable kernels, forward and backward, run in the emulation: against the fp64 oracle and the counting
// oracle.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "base/dtype.h"
#include "emulated_plan.h"
#include "kernels/portable/choose_shape.h"
#include "mask/patterns/patterns.h"
#include "unit/kernels/attention_case.h"

namespace longspan::portable {
namespace {

constexpr int64_t kBelow = kUnboundedBelow, kAbove = kUnboundedAbove;

Mask one_band(int64_t rows, int64_t columns, int64_t lo, int64_t hi) {
  return Mask(rows, columns, std::vector<Band>{{{0, rows}, {0, columns}, lo, hi}});
}

Problem problem_of(HeadMasks masks, int64_t heads_q, int64_t heads_kv, int64_t head_dim,
                   DType dtype = DType::kBF16) {
  Problem problem = make_problem(masks.front(), heads_q, heads_kv, head_dim, dtype);
  problem.masks = std::make_shared<const HeadMasks>(std::move(masks));
  return problem;
}

void expect_right(const Problem& problem, const std::string& what, bool counting = false,
                  int capability = 80) {
  SCOPED_TRACE(fmt::format("{}: {} x {}, heads {}:{}, head_dim {}, {}{}{}", what, problem.tokens_q,
                           problem.tokens_kv, problem.heads_q, problem.heads_kv, problem.head_dim,
                           name_of(problem.dtype), problem.fp32_output ? ", f32 output" : "",
                           problem.deterministic ? ", deterministic" : ""));
  Problem planned = problem;
  planned.sinks.clear();  // which calls get
  const std::unique_ptr<Plan> plan = emulated_plan(planned, capability);
  VerifyOptions options;
  options.counting = counting;
  const VerifyReport report = verify(*plan, problem, Direction::kBackward, cpu_device(), options);
  EXPECT_EQ(report.tensors.size(), problem.sinks.empty() ? 5u : 6u);
  EXPECT_EQ(report.failure, "");
}

struct NamedMask {
  std::string name;
  Mask mask;
};

// Every shape of band, many short intervals in a row, rows and keys that see nothing.
std::vector<NamedMask> masks_of(int64_t s) {
  const Range all{0, s};
  std::vector<Band> stripes;
  for (int64_t at = 0; at < s; at += 7) stripes.push_back({all, {at, std::min(at + 3, s)}});
  return {
      {"full", Mask(s, s, std::vector<Band>{{all, all}})},
      {"causal", one_band(s, s, kBelow, 0)},
      {"inverse causal", one_band(s, s, 0, kAbove)},
      {"two windows", Mask(s, s, {{all, all, -90, -70}, {all, all, -20, 0}})},
      {"documents", Mask(s, s, {{{0, s / 3}, {0, s / 3}}, {{s / 3 + 1, s}, {s / 3 + 1, s}, kBelow, 0}})},
      {"stripes", Mask(s, s, stripes)},
      {"nothing", Mask(s, s, std::vector<Band>{})},
  };
}

TEST(PortableEmulated, OddLengthsOfEveryMask) {
  for (const int64_t s : {1, 7, 63, 129}) {
    int64_t turn = s;
    for (const NamedMask& named : masks_of(s)) {
      const int64_t head_dim = std::vector<int64_t>{64, 128, 40}[static_cast<size_t>(turn++ % 3)];
      expect_right(problem_of({named.mask}, 4, 2, head_dim, turn % 2 == 0 ? DType::kBF16 : DType::kF16),
                   named.name, s == 63);
    }
  }
}

TEST(PortableEmulated, EveryInstance) {
  for (const int64_t head_dim : {8, 64, 72, 96, 128, 136, 192, 200, 256}) {
    const bool is_instance = head_dim % 64 == 0 || head_dim == 96;
    for (const int capability : {80, 86, 90}) {  // large and small shared memory; measured
      if (capability != 80 && !is_instance) continue;
      for (const NamedMask& named : masks_of(150))
        if (named.name == "two windows" || (is_instance && named.name == "full"))
          expect_right(problem_of({named.mask}, 2, 1, head_dim), named.name, head_dim == 128, capability);
      expect_right(problem_of({one_band(150, 150, kBelow, 0)}, 1, 1, head_dim, DType::kF16), "causal", false,
                   capability);
    }
  }
}

// Backward, all tiles of keys pass one segment of the rows before the next.
TEST(PortableEmulated, SegmentsOfRows) {
  for (const NamedMask& named : masks_of(150))
    expect_right(problem_of({named.mask}, 8, 4, 192), named.name, named.name == "two windows", 90);
  const Problem problem = problem_of({one_band(150, 150, kBelow, 0)}, 8, 4, 256);
  Device gpu;
  gpu.capability = 90, gpu.units = 8, gpu.cache_bytes = 64 << 10;
  EXPECT_EQ(choose_segments(problem, choose_backward_shape(problem, gpu), gpu), 8);
}

TEST(PortableEmulated, EveryLayoutOfHeads) {
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{1, 1}, {3, 3}, {6, 2}, {8, 1}, {12, 2}, {16, 1}})
    expect_right(problem_of({one_band(90, 90, -50, 3)}, q, kv, 64), "window", q == 8);
}

TEST(PortableEmulated, QueriesAndKeysOfDifferentLengths) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 300}, {300, 1}, {40, 290}, {290, 40}}) {
    Problem problem = problem_of({one_band(rows, columns, kBelow, columns - rows)}, 4, 1, 64);
    expect_right(problem, "causal");
    problem.fp32_output = true;
    expect_right(problem, "causal");
  }
}

// Longer than the tiles of a run, so that full tiles follow partial ones.
TEST(PortableEmulated, ManyTiles) {
  expect_right(problem_of({one_band(700, 700, kBelow, 0)}, 1, 1, 64), "causal", true);
  expect_right(problem_of({one_band(600, 600, -200, 30)}, 2, 1, 96, DType::kF16), "window");
}

// Tiles of keys that so many rows see that several CTAs share them.
TEST(PortableEmulated, PiecesOfATileOfKeys) {
  for (const NamedMask& named : masks_of(600))
    if (named.name == "full" || named.name == "documents")
      for (const bool fp32 : {false, true}) {
        Problem problem = problem_of({named.mask}, 8, 1, 64);
        problem.fp32_output = fp32;
        expect_right(problem, named.name, true);
      }
}

// A row's sums may not grow with each tile that leaves its maximum as it is.
TEST(PortableEmulated, LongRowsDoNotDrift) {
  const int64_t keys = 32768;
  const Problem problem = problem_of({Mask(1, keys, std::vector<Band>{{{0, 1}, {0, keys}}})}, 1, 1, 64);
  EXPECT_EQ(verify(*emulated_plan(problem, 80), problem, Direction::kForward, cpu_device(), {}).failure, "");
}

TEST(PortableEmulated, EveryPattern) {
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = 1024;  // block_causal_document needs a multiple of 1024
    const int64_t heads = pattern.name.ends_with("block_sparse") ? 2 : 1;  // with masks of their own
    options.kv_heads = heads;
    options.lengths = "uniform:20:400";
    if (pattern.name == "sliding_window_causal") options.values.set("window", TokenPair{100, {}});
    if (pattern.name == "sliding_window") options.values.set("window", TokenPair{100, 30});
    if (pattern.name == "uniform_block_sparse") options.values.set("block", 64);
    if (pattern.name == "variable_block_sparse") options.values.set("block", 128).set("block_min", 40);
    expect_right(problem_of(draw_mask(pattern.name, options).masks, heads, heads, 16),
                 std::string(pattern.name));
  }
}

TEST(PortableEmulated, MasksThatDifferByKvHead) {
  const std::vector<NamedMask> masks = masks_of(200);
  for (const bool deterministic : {false, true}) {
    Problem problem = problem_of({masks[1].mask, masks[5].mask, masks[4].mask}, 6, 3, 32);
    problem.deterministic = deterministic;
    expect_right(problem, "one mask per KV head", true);
  }
}

TEST(PortableEmulated, PartialOutputs) {
  for (const bool own_rows : {false, true})
    for (const DType dtype : {DType::kBF16, DType::kF16})
      for (const int64_t head_dim : {40, 192}) {
        Problem problem = problem_of({one_band(170, 170, kBelow, 0)}, 4, 2, head_dim, dtype);
        problem.fp32_output = true;
        problem.own_rows = own_rows;
        expect_right(problem, own_rows ? "own rows" : "partial");
      }
}

// Blocks run one after another here, so this shows that the numbers of their turns fit, not that they wait.
TEST(PortableEmulated, DeterministicGradients) {
  for (const NamedMask& named : masks_of(330)) {
    Problem problem = problem_of({named.mask}, 4, 2, 64);
    problem.deterministic = true;
    expect_right(problem, named.name);
  }
}

TEST(PortableEmulated, GradientOfLse) {
  for (const NamedMask& named : masks_of(100)) {
    Problem problem = problem_of({named.mask}, 4, 2, 24);
    problem.lse_gradient = true;
    expect_right(problem, named.name);
  }
}

TEST(PortableEmulated, OwnScaleAndLargeScores) {
  for (const float scale : {0.01f, 1.0f}) {
    Problem problem = problem_of({one_band(130, 130, -70, 10)}, 2, 1, 64);
    problem.scale = scale;
    expect_right(problem, fmt::format("scale {}", scale));
  }
}

std::vector<float> slopes_of(int64_t heads) {
  std::vector<float> slopes;
  for (int64_t h = 0; h < heads; ++h) slopes.push_back(0.3f / static_cast<float>(1 + h));
  return slopes;
}

TEST(PortableEmulated, HeadDimOfValuesIsItsOwn) {
  for (const auto& [dim, dim_v] : {std::pair<int64_t, int64_t>{64, 32}, {40, 128}, {192, 128}, {8, 256}}) {
    Problem problem = problem_of({one_band(150, 150, -90, 0)}, 4, 2, dim);
    problem.head_dim_v = dim_v;
    problem.lse_gradient = true;
    expect_right(problem, fmt::format("head_dim_v {}", dim_v), dim == 64);
    problem.fp32_output = true;
    problem.dtype = DType::kF16;
    expect_right(problem, fmt::format("head_dim_v {}", dim_v));
  }
}

TEST(PortableEmulated, ScoresAreCapped) {
  for (const NamedMask& named : masks_of(150)) {
    for (const float softcap : {1.0f, 30.0f}) {
      Problem problem = problem_of({named.mask}, 4, 2, 64);
      problem.softcap = softcap;
      problem.scale = 0.5f;  // beyond the smaller cap
      expect_right(problem, fmt::format("{}, softcap {}", named.name, softcap), true);
    }
  }
}

TEST(PortableEmulated, AlibiLowersDistantScores) {
  for (const NamedMask& named : masks_of(150)) {
    Problem problem = problem_of({named.mask}, 6, 3, 40, DType::kF16);
    problem.alibi_slopes = slopes_of(6);
    expect_right(problem, named.name + ", ALiBi");
  }
  // Far keys have weights below the smallest numbers of f16.
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{40, 420}, {290, 40}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Problem problem = problem_of({one_band(rows, columns, kBelow, columns - rows)}, 8, 1, 64, dtype);
      problem.alibi_slopes = slopes_of(8);
      expect_right(problem, "ALiBi");
    }
  }
}

TEST(PortableEmulated, SinksJoinEveryRow) {
  for (const NamedMask& named : masks_of(150)) {
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{3, 3}, {8, 1}}) {
      Problem problem = problem_of({named.mask}, q, kv, 64);
      problem.sinks = drawn_sinks(q, 1);
      problem.sinks[0] = 80, problem.sinks[1] = -80;  // nearly all of a row, and nearly nothing
      problem.lse_gradient = true;
      problem.fp32_output = q == 3;
      expect_right(problem, named.name + ", sinks");
    }
  }
}

TEST(PortableEmulated, AllFeaturesInEveryInstance) {
  for (const int64_t head_dim : {64, 96, 128, 192, 256}) {
    for (const int capability : {80, 86, 90}) {
      Problem problem = problem_of({one_band(140, 140, -90, 20)}, 4, 1, head_dim);
      problem.head_dim_v = head_dim - 24;
      problem.softcap = 4;
      problem.alibi_slopes = slopes_of(4);
      problem.deterministic = capability != 80;
      expect_right(problem, "all features", false, capability);
    }
  }
}

// Rows whose only scores are far below 0: exp(0 - lse) overflows for keys past the end, which are zeros.
TEST(PortableEmulated, KeysPastTheEndDoNotOverflow) {
  Problem problem = problem_of({Mask(130, 130, std::vector<Band>{{{0, 130}, {128, 130}}})}, 2, 1, 64);
  problem.scale = 30;
  const AttentionOutputs got = AttentionCase(problem).run(*emulated_plan(problem, 80));
  EXPECT_LT(*std::min_element(got.lse.begin(), got.lse.end()), -100);
  for (const std::vector<float>* tensor : {&got.o, &got.dq, &got.dk, &got.dv})
    for (const float x : *tensor) ASSERT_TRUE(std::isfinite(x));
}

// Keys are cut in two; the second call merges with the result of the first one, in place.
TEST(PortableEmulated, MergesAPartialResult) {
  const int64_t s = 150, cut = 70;
  std::vector<Band> left, right;
  left.push_back({{0, s}, {0, cut}, kBelow, 0});
  right.push_back({{0, 140}, {0, s - cut}, kBelow, -cut});  // the last rows see nothing here
  Problem whole =
      problem_of({Mask(s, s, {{{0, s}, {0, cut}, kBelow, 0}, {{0, 140}, {cut, s}, kBelow, 0}})}, 4, 2, 40);
  const AttentionCase inputs(whole);
  const AttentionOutputs truth = inputs.brute_force();
  for (const bool to_f32 : {true, false}) {
    Problem first = problem_of({Mask(s, cut, left)}, 4, 2, 40),
            second = problem_of({Mask(s, s - cut, right)}, 4, 2, 40);
    first.fp32_output = second.fp32_output = true;
    const auto rows = static_cast<size_t>(4 * s);
    Buffer o(rows * 40 * sizeof(float), cpu_device()), lse(rows * sizeof(float), cpu_device());
    Buffer last(o.bytes(), cpu_device());
    const TensorView part = TensorView::contiguous(o.data(), DType::kF32, s, 4, 40);
    TensorView k = inputs.k(), v = inputs.v();
    k.tokens = v.tokens = cut;
    emulated_plan(first, 80)->forward({inputs.q(), k, v, part, lse.as<float>()}, Stream{});
    k.data = k.row_address(cut, 0), v.data = v.row_address(cut, 0);
    k.tokens = v.tokens = s - cut;
    const TensorView out = to_f32 ? part : TensorView::contiguous(last.data(), DType::kBF16, s, 4, 40);
    ForwardArgs args{inputs.q(), k, v, out, lse.as<float>()};
    args.part_o = part;
    args.part_lse = lse.as<float>();
    emulated_plan(second, 80)->forward(args, Stream{});
    std::vector<float> got(truth.o.size());
    for (size_t i = 0; i < got.size(); ++i) got[i] = to_f32 ? o.as<float>()[i] : to_float(last.as<bf16>()[i]);
    EXPECT_LT(relative_error(got, truth.o), 5e-3) << to_f32;
    EXPECT_LT(relative_error({lse.as<float>(), lse.as<float>() + rows}, truth.lse), 1e-5);
  }
}

// The comparison can fail: a plan of another mask is found wrong.
TEST(PortableEmulated, AnotherMaskIsWrong) {
  const Problem causal = problem_of({one_band(100, 100, kBelow, 0)}, 2, 1, 64);
  const std::unique_ptr<Plan> plan = emulated_plan(problem_of({one_band(100, 100, kBelow, 1)}, 2, 1, 64), 80);
  EXPECT_NE(verify(*plan, causal, Direction::kBackward, cpu_device(), {}).failure, "");
}

}  // namespace
}  // namespace longspan::portable
