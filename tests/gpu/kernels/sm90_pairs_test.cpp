// sm90's forward kernel in CTA pairs with a split last wave, against the fp64 oracle. The planner does not
// choose them.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "hopper.h"
#include "in_parts.h"
#include "kernels/sm90/forward/plan.h"
#include "kernels/sm90/sm90.h"
#include "mask/patterns/patterns.h"
#include "output_bytes.h"

namespace longspan {
namespace {

using sm90::ForwardPlan;
using sm90::ForwardShape;

Mask block(int64_t rows, int64_t columns, Range keys) {
  return Mask(rows, columns, std::vector<Band>{{{0, rows}, keys}});
}

HeadMasks drawn(const char* pattern, int64_t seqlen) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:50:500";
  return draw_mask(pattern, options).masks;
}

ForwardShape in_pairs(const Problem& problem) {
  ForwardShape shape = sm90::choose_forward_shape(problem, first_gpu());
  shape.columns = shape.piece = 128;
  shape.paired = true;
  return shape;
}

std::string name_of_problem(const Problem& p) {
  return std::to_string(p.tokens_q) + " x " + std::to_string(p.tokens_kv) + ", heads " +
         std::to_string(p.heads_q) + ":" + std::to_string(p.heads_kv) + ", " + std::string(name_of(p.dtype)) +
         (p.fp32_output ? ", f32 output" : "");
}

class InPairs final : public ForwardOnly {
 public:
  explicit InPairs(const Problem& problem)
      : problem_(problem), gpu_(first_gpu()), plan_(problem, in_pairs(problem), gpu_) {}
  size_t workspace_bytes(Direction) const override { return plan_.workspace_bytes(); }
  void forward(const ForwardArgs& args, Stream stream) override { plan_.run(problem_, args, gpu_, stream); }

 private:
  Problem problem_;
  Device gpu_;
  ForwardPlan plan_;
};

// In pairs at head_dim 128, which alone has them.
ForwardShape shape_of_part(const Problem& problem) {
  return problem.head_dim == 128 ? in_pairs(problem) : sm90::choose_forward_shape(problem, first_gpu());
}

void expect_right(Plan& plan, const Problem& problem) {
  SCOPED_TRACE(name_of_problem(problem));
  const VerifyReport report = verify(plan, problem, Direction::kForward, first_gpu(), {});
  EXPECT_EQ(report.tensors.size(), 2u);
  EXPECT_EQ(report.failure, "");
}

TEST(Sm90Pairs, AreRightForRowsThatSeeTheSameKeys) {
  LONGSPAN_NEEDS_HOPPER();
  struct Case {
    int64_t rows, columns;
    Range keys;
    int64_t heads_q, heads_kv;
  };
  for (const Case& c : {Case{3999, 8191, {0, 8191}, 16, 2}, Case{3999, 8191, {0, 8191}, 16, 1},
                        Case{3800, 8195, {3, 8194}, 16, 2}, Case{7000, 4099, {0, 4099}, 8, 1},
                        Case{5000, 4133, {0, 4133}, 12, 2}, Case{6000, 4096, {0, 4096}, 12, 3},
                        Case{4096, 4096, {0, 4096}, 64, 8}, Case{8192, 8192, {0, 8192}, 64, 8}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const Problem problem =
          problem_of({block(c.rows, c.columns, c.keys)}, c.heads_q, c.heads_kv, 128, dtype);
      InPairs plan(problem);
      expect_right(plan, problem);
    }
  }
}

// Lengths around those of tiles and of pairs of row tiles, with a split last wave and without.
TEST(Sm90Pairs, ComputeAnyLengths) {
  LONGSPAN_NEEDS_HOPPER();
  for (const int64_t rows : {1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 300, 1000, 1100})
    for (const int64_t columns : {1, 127, 128, 129, 255, 640, 1153, 2500}) {
      Problem problem = problem_of({block(rows, columns, {0, columns})}, 8, 1);
      InPairs plan(problem);
      expect_right(plan, problem);
      problem.fp32_output = true;
      if (columns == 2500) expect_right(plan, problem);  // nothing is split
    }
}

TEST(Sm90Pairs, GiveZeroToRowsWithoutKeys) {
  LONGSPAN_NEEDS_HOPPER();
  const std::vector<Band> some = {{{40, 90}, {0, 300}}, {{200, 210}, {299, 300}}};
  for (const std::vector<Band>& bands : {std::vector<Band>{}, some}) {
    const Problem problem = problem_of({Mask(500, 300, bands)}, 8, 1);
    InPairs plan(problem);
    expect_right(plan, problem);
  }
}

TEST(Sm90Pairs, ComputeAllMasksAndLayouts) {
  LONGSPAN_NEEDS_HOPPER();
  for (const char* pattern : {"full", "causal", "sliding_window", "causal_document", "share_question",
                              "global_sliding_window", "causal_blockwise"})
    for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{8, 1}, {4, 2}, {12, 3}})
      for (const bool fp32_output : {false, true}) {
        Problem problem = problem_of(drawn(pattern, 1500), q, kv);
        problem.fp32_output = fp32_output;
        SCOPED_TRACE(pattern);
        InPairs plan(problem);
        expect_right(plan, problem);
      }
}

TEST(Sm90Pairs, MergeWithOtherResults) {
  LONGSPAN_NEEDS_HOPPER();
  for (const bool fp32_output : {false, true})
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Problem problem = problem_of({block(1100, 3000, {0, 3000})}, 16, 2, 128, dtype);
      problem.fp32_output = fp32_output;
      InParts plan(problem, 1700, shape_of_part);
      expect_right(plan, problem);
    }
}

TEST(Sm90ThreeWarpgroups, MergeWithOtherResults) {
  LONGSPAN_NEEDS_HOPPER();
  for (const auto& [q, kv] : {std::pair<int64_t, int64_t>{16, 2}, {3, 3}})
    for (const bool fp32_output : {false, true})
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        Problem problem = problem_of({block(1100, 3000, {0, 3000})}, q, kv, 64, dtype);
        problem.fp32_output = fp32_output;
        ASSERT_EQ(sm90::choose_forward_shape(problem, first_gpu()).warpgroups, 3);
        InParts plan(problem, 1700, shape_of_part);
        expect_right(plan, problem);
      }
}

TEST(Sm90Pairs, GiveTheSameBitsEveryTime) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{3999, 9001}, {1100, 2500}, {300, 1100}, {2100, 1000}}) {
    const Problem problem = problem_of({block(rows, columns, {0, columns})}, 16, 2);
    SCOPED_TRACE(name_of_problem(problem));
    InPairs plan(problem);
    ProblemTensors tensors(problem, Direction::kForward, gpu, plan);
    tensors.fill_inputs(1);
    const auto bytes = [&] { return forward_bytes(plan, problem, tensors); };
    const std::vector<char> first = bytes();
    for (int repeat = 0; repeat < 1000; ++repeat) ASSERT_EQ(bytes(), first) << "repeat " << repeat;
  }
}

TEST(Sm90Pairs, KeepPartialResultsInTheWorkspace) {
  LONGSPAN_NEEDS_HOPPER();
  const Device gpu = first_gpu();
  const Problem even = problem_of({block(66 * 32, 2048, {0, 2048})}, 8, 1);
  const Problem divided = problem_of({block(67 * 32, 2048, {0, 2048})}, 8, 1);
  if (gpu.units != 132) GTEST_SKIP() << "66 pairs";
  const size_t without = ForwardPlan(even, in_pairs(even), gpu).workspace_bytes();
  const size_t with = ForwardPlan(divided, in_pairs(divided), gpu).workspace_bytes();
  EXPECT_EQ(without, 0u);
  EXPECT_GT(with, 2 * 2 * 128 * 129 * sizeof(float));  // at least two parts
}

}  // namespace
}  // namespace longspan
