// Every kernel that runs on this GPU, peers included, on every pattern that it supports, against the oracles.
#include "attention/oracle/verify.h"

#include <csignal>
#include <cstdio>

#include <gmock/gmock.h>

#include "base/error.h"
#include "gpu/gpu.h"
#include "kernels/registry.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

Problem problem_of(const Pattern& pattern, int64_t seqlen, int64_t heads_q, int64_t heads_kv, DType dtype) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.kv_heads = heads_kv;
  if (pattern.name == "uniform_block_sparse") options.values.set("block", 64);
  if (pattern.name == "variable_block_sparse") options.values.set("block", 256);
  Problem p;
  p.tokens_q = p.tokens_kv = seqlen;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.head_dim = 128;
  p.dtype = dtype;
  p.masks = std::make_shared<const HeadMasks>(draw_mask(pattern.name, options).masks);
  return p;
}

std::vector<const Kernel*> gpu_kernels() {
  std::vector<const Kernel*> all;
  for (const Kernel* kernel : kernels()) {
    if (kernel->device_kind() == DeviceKind::kCuda) all.push_back(kernel);
  }
  return all;
}

class GpuKernel : public testing::TestWithParam<const Kernel*> {};

TEST_P(GpuKernel, IsRightOnEveryPatternThatItTakes) {
  LONGSPAN_NEEDS_GPU();
  const Kernel& kernel = *GetParam();
  const Device gpu = first_gpu();
  std::string taken, refused;
  for (const Pattern& pattern : patterns()) {
    for (const auto& [seqlen, heads_q, heads_kv] :
         {std::tuple<int64_t, int64_t, int64_t>{2048, 4, 2}, {1024, 2, 2}}) {
      const Problem p = problem_of(pattern, seqlen, heads_q, heads_kv, DType::kBF16);
      SCOPED_TRACE(fmt::format("{} {} {}:{}", pattern.name, seqlen, heads_q, heads_kv));
      Direction direction = Direction::kBackward;
      Support support = kernel.supports(p, direction, gpu);
      if (!support) support = kernel.supports(p, direction = Direction::kForward, gpu);
      if (!support) {
        refused = support.reason;
        continue;
      }
      const std::unique_ptr<Plan> plan = kernel.plan(p, gpu);
      const VerifyReport report = verify(*plan, p, direction, gpu, {});
      EXPECT_EQ(report.failure, "");
      EXPECT_GT(report.rows, 0);
      if (seqlen == 1024)
        taken += fmt::format(" {}{}", pattern.name, direction == Direction::kForward ? "(fwd)" : "");
      // The comparison can fail: the same plan must not pass for another mask.
      if (seqlen == 1024 && pattern.name == "causal") {
        Problem wrong = p;
        wrong.masks = problem_of(patterns()[0], seqlen, heads_q, heads_kv, DType::kBF16).masks;
        EXPECT_NE(verify(*plan, wrong, direction, gpu, {}).failure, "");
      }
    }
  }
  std::printf("%s:%s\n", std::string(kernel.name()).c_str(), taken.c_str());
  if (taken.empty()) GTEST_SKIP() << refused;
}

TEST_P(GpuKernel, TimesItselfIfItMust) {
  LONGSPAN_NEEDS_GPU();
  const Kernel& kernel = *GetParam();
  const Device gpu = first_gpu();
  const Problem p = problem_of(pattern_from_name("causal"), 1024, 4, 2, DType::kBF16);
  if (const Support support = kernel.supports(p, Direction::kForward, gpu); !support)
    GTEST_SKIP() << support.reason;
  const std::unique_ptr<Plan> plan = kernel.plan(p, gpu);
  SelfTimed* timed = plan->self_timed();
  if (timed == nullptr) GTEST_SKIP() << "the runner times it";
  ProblemTensors tensors(p, Direction::kForward, gpu, *plan);
  tensors.fill_inputs(1);
  tensors.forward(*plan);
  int calls = 0;
  for (const bool cold : {true, false}) {
    for (const int64_t count : {1, 5}) {
      const std::vector<double> times_s = timed->times_s(Direction::kForward, cold, count, [&] { ++calls; });
      EXPECT_FALSE(times_s.empty());
      EXPECT_LE(times_s.size(), static_cast<size_t>(count));
      EXPECT_THAT(times_s, testing::Each(testing::AllOf(testing::Gt(1e-7), testing::Lt(1.0))));
    }
  }
  EXPECT_EQ(calls, 4);
  // A timed run gives what it computed, also on inputs that the plan has not seen.
  tensors.fill_inputs(2);
  tensors.poison(Direction::kForward);
  timed->time_next_run(true);
  tensors.forward(*plan);
  EXPECT_EQ(verify_outputs(p, Direction::kForward, tensors.views(), {}, plan->notes().drift_keys).failure,
            "");
}

INSTANTIATE_TEST_SUITE_P(Kernels, GpuKernel, testing::ValuesIn(gpu_kernels()), [](const auto& info) {
  std::string name(info.param->name());
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace longspan
