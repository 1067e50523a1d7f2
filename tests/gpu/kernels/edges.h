// Problems at the edges of a kernel's tiles, both passes against the fp64 oracle. For every kernel of ours.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "attention/kernel.h"
#include "attention/oracle/verify.h"
#include "hopper.h"

namespace longspan {

inline Mask one_band(int64_t rows, int64_t columns, int64_t lo, int64_t hi) {
  return Mask(rows, columns, std::vector<Band>{{{0, rows}, {0, columns}, lo, hi}});
}

inline void expect_right(const Kernel& kernel, const Problem& problem) {
  SCOPED_TRACE(fmt::format("{} x {}, heads {}:{}, head_dim {}/{}, {}{}{}", problem.tokens_q,
                           problem.tokens_kv, problem.heads_q, problem.heads_kv, problem.head_dim,
                           problem.dim_v(), name_of(problem.dtype), problem.fp32_output ? ", f32 output" : "",
                           problem.deterministic ? ", deterministic" : ""));
  const Device gpu = first_gpu();
  ASSERT_EQ(kernel.supports(problem, Direction::kBackward, gpu).reason, "");
  const std::unique_ptr<Plan> plan = kernel.plan(problem, gpu);
  const VerifyReport report = verify(*plan, problem, Direction::kBackward, gpu, {});
  EXPECT_EQ(report.tensors.size(), 5u);
  EXPECT_EQ(report.failure, "");
}

// Full, causal and a window, with groups of several sizes.
inline void expect_right_at_lengths(const Kernel& kernel, std::initializer_list<int64_t> lengths,
                                    std::initializer_list<int64_t> head_dims) {
  for (const int64_t s : lengths) {
    for (const int64_t head_dim : head_dims) {
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        const auto check = [&](int64_t lo, int64_t hi, int64_t heads_q, int64_t heads_kv) {
          expect_right(kernel, problem_of({one_band(s, s, lo, hi)}, heads_q, heads_kv, head_dim, dtype));
        };
        check(kUnboundedBelow, kUnboundedAbove, 8, 2);
        check(kUnboundedBelow, 0, 8, 1);
        if (s > 100) check(-50, 3, 3, 3);
      }
    }
  }
}

// A causal mask of as many rows as columns or not, also with f32 outputs, also of own rows.
inline void expect_right_where_lengths_differ(const Kernel& kernel) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 777}, {777, 1}, {300, 2300}, {2300, 300}}) {
    Problem problem = problem_of({one_band(rows, columns, kUnboundedBelow, columns - rows)}, 8, 2);
    expect_right(kernel, problem);
    problem.fp32_output = true;
    expect_right(kernel, problem);
    problem.own_rows = true;
    expect_right(kernel, problem);
  }
}

inline void expect_right_with_heads(const Kernel& kernel, std::initializer_list<int64_t> head_dims) {
  for (const auto& [q, kv] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 3}, {12, 4}, {10, 2}, {16, 1}, {32, 4}, {64, 8}})
    for (const int64_t head_dim : head_dims)
      expect_right(kernel, problem_of({one_band(700, 700, kUnboundedBelow, 0)}, q, kv, head_dim));
}

// A mask of nothing, and one that leaves rows between its blocks without keys.
inline void expect_zero_for_rows_without_keys(const Kernel& kernel) {
  expect_right(kernel, problem_of({Mask(500, 500, std::vector<Band>{})}, 4, 2));
  std::vector<Band> bands;
  for (int64_t r = 0; r < 900; r += 150)
    for (int64_t c = r; c < 900; c += 40) bands.push_back({{r, r + 50}, {c, c + 13}});
  for (const bool fp32_output : {false, true}) {
    Problem problem = problem_of({Mask(900, 900, bands)}, 8, 2);
    problem.fp32_output = fp32_output;
    expect_right(kernel, problem);
  }
}

// The last rows of a long document share a row tile with the first rows of the next one, which see none of
// its keys.
inline void expect_no_drift_on_long_rows(const Kernel& kernel) {
  const Device gpu = first_gpu();
  const int64_t length = 20007, rows = 20100;
  const Mask mask(rows, rows,
                  std::vector<Band>{{{0, length}, {0, length}, kUnboundedBelow, 0},
                                    {{length, rows}, {length, rows}, kUnboundedBelow, 0}});
  const Problem problem = problem_of({mask}, 16, 2);
  const std::unique_ptr<Plan> plan = kernel.plan_forward(problem, gpu);
  const VerifyReport report = verify(*plan, problem, Direction::kForward, gpu, {});
  ASSERT_EQ(report.tensors.size(), 2u) << report.failure;
  EXPECT_EQ(report.failure, "");
  EXPECT_LT(report.tensors[1].error, 3e-6) << "of lse; a row's sum drifts with every tile";
}

}  // namespace longspan
